// The public endpoints, and the API key of every request. The browser keeps the key until the tab
// closes, so that a reload does not ask for it again.

import { refusal } from './ending.js';

const name = 'whence-key';

let key = stored();
let waiting = []; // for another key

function stored() {
  try {
    return sessionStorage.getItem(name) ?? '';
  } catch {
    return ''; // storage is blocked, or there is none: the key lasts as long as the page
  }
}

// useKey sends a key with every request from now on; an empty key sends none.
export function useKey(text) {
  key = text.trim();
  try {
    if (key) sessionStorage.setItem(name, key);
    else sessionStorage.removeItem(name);
  } catch {
    // as above
  }
  const told = waiting;
  waiting = [];
  for (const tell of told) tell();
}

export const apiKey = () => key;

// anotherKey returns a promise that is fulfilled when the reader gives another key.
export const anotherKey = () => new Promise((done) => waiting.push(done));

// authorization returns the header that carries the key.
export function authorization() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(path, method = 'GET', body = undefined) {
  let response;
  try {
    response = await fetch(path, { method, headers: body ? { ...authorization(), 'Content-Type': 'application/json' } : authorization(), body, cache: 'no-store' });
  } catch {
    throw new Error('the server could not be reached');
  }
  const answer = await response.text();
  if (!response.ok) {
    const { status, message } = refusal(response.status, null, answer);
    throw Object.assign(new Error(message || `the server answered ${status}`), { status });
  }
  return JSON.parse(answer);
}

// models returns the ids of the models that requests may name.
export async function models() {
  return ((await request('/v1/models')).data ?? []).map((model) => model.id);
}

export const streamPath = (id) => `/v1/streams/${encodeURIComponent(id)}`;

export const story = (id) => request(streamPath(id));

export const stop = (id) => request(streamPath(id), 'DELETE');

// tell reports how a stream arrived, so that its story can say whether a proxy buffers tokens.
export const tell = (id, token, report) => request(`${streamPath(id)}/seen?token=${encodeURIComponent(token ?? '')}`, 'POST', report);

// live returns the running streams, oldest first. It reads all pages of the list. An empty filter
// selects all.
export async function live(filters = {}) {
  const all = [];
  for (let token = ''; ; ) {
    const query = select({ ...filters, page_token: token });
    const page = await request(`/v1/streams${query && `?${query}`}`);
    all.push(...page.streams);
    token = page.next_page_token;
    if (!token) return all;
  }
}

// select returns the query of a list.
function select(filters) {
  return String(new URLSearchParams(Object.entries(filters).filter(([, value]) => value)));
}

// mostEnded is the most ended streams that the server lists at once.
export const mostEnded = 1000;

// ended returns the last streams that ended. An empty filter selects all.
export async function ended(filters) {
  return (await request(`/v1/streams?${select({ state: 'ended', ...filters })}`)).streams;
}

export const workers = async () => (await request('/v1/workers')).workers;

// settled returns the story of a stream once the stream has ended on every hop, or the current
// story after a while: when the reader gets the ending, some hops may not have it yet.
export async function settled(id, { tries = 12, wait = (ms) => new Promise((done) => setTimeout(done, ms)) } = {}) {
  for (let i = 0; ; i++) {
    const told = await story(id);
    if (i >= tries || told.hops.every((hop) => hop.state === 'ended')) return told;
    await wait(10 << Math.min(i, 4));
  }
}
