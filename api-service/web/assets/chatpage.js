// #/: a conversation, the settings of its next request, and one answer at a time.

import { Announcer } from './announce.js';
import { anotherKey, apiKey, models, settled, stop as stopStream, story, tell as report, useKey } from './api.js';
import { begin, follow, unique } from './chat.js';
import { Chats, messagesOf, stored } from './chats.js';
import { apis, curl, missing } from './curl.js';
import { describe } from './ending.js';
import { Life } from './life.js';
import { node, refill } from './node.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { remember, Seen } from './seen.js';
import { copy, followEnd, panel, Turn, waiting } from './ui.js';

const patience = 1500; // how long a stop may take before the page closes the connection instead
const resumable = 3; // chats whose answers a new page resumes: a browser has few connections

const $ = (id) => document.getElementById(id);
const prompt = $('prompt');
const announcer = new Announcer($('announcer'));
const toEnd = followEnd($('log'), $('turns'), $('latest'));
const settings = panel($('toggle'), $('panel'));
const wide = matchMedia('(min-width: 60rem)');
const widest = matchMedia('(min-width: 76.01rem)'); // there is room for the settings and the picture

const chats = new Chats();
const problem = new Problem();

let chat = { turns: [] }; // it has an id from its first question on
let asked = null; // the last request
let editing = null; // the record whose question the composer has
let shown = null; // the turn whose life is in the picture: {turn, life}

// The answers in progress, by their chats: {record, seen, life, turn, controller, broken}. An answer
// continues when its chat is left; it has no turn then. It has no record until the request is known.
const running = new Map();

// send sends a question, unless an answer is in progress. replaced is called if the question is sent.
async function send(question, replaced = () => {}) {
  const talk = chat;
  if (running.has(talk) || !question.trim() || !settingsReadable()) return;
  const pending = {};
  running.set(talk, pending);
  showControls();
  if (!$('model').value) await loadModels();
  if (running.get(talk) !== pending) return; // stopped before the stream began
  running.delete(talk);
  if (talk !== chat || !$('model').value) {
    showControls();
    return;
  }

  if (prompt.value === question) prompt.value = '';
  replaced();
  const from = talk.turns.indexOf(editing);
  if (from >= 0) { // what followed the old question answered it
    talk.turns.splice(from);
    for (const turn of [...$('turns').children].slice(from)) turn.remove();
  }
  edit(null);
  const request = requestFor([...messagesOf(talk), { role: 'user', content: question }]);
  asked = request;
  showCurl();
  $('empty').hidden = true;
  announcer.clear();
  for (const earlier of talk.turns) delete earlier.open; // only the last turn can be resumed
  const record = {
    question, answer: '', model: request.model, id: '', asked: performance.timeOrigin + performance.now(), open: begin(request),
    kind: 'cut', line: 'cut off — the page was closed',
  };
  talk.turns.push(record);
  if (!talk.id) address(talk);
  run(talk, record, show(record));
  toEnd();
}

// run reads the stream of an open record to its ending, whichever chat is shown meanwhile.
async function run(talk, record, turn = null) {
  const asked = record.asked - performance.timeOrigin;
  const seen = new Seen(record.id, asked);
  if (record.id) remember(seen);
  const mine = { record, seen, turn, life: new Life(seen), controller: new AbortController(), broken: false };
  running.set(talk, mine);
  if (turn) attach(mine, turn);
  let elsewhere = Boolean(record.id); // another page has read the beginning
  let close = () => {};
  const ending = await follow(record.open, {
    signal: mine.controller.signal,
    asked: elsewhere ? null : asked,
    onMade: (id) => {
      record.id = seen.id = id;
      remember(seen);
      mine.turn?.name(id);
      chats.keep(talk);
      listChats();
      if (seen.stopped !== null) stopStream(id).catch(() => {}); // the connection is closed soon
    },
    onOpen: (now, headers) => {
      const again = elsewhere || seen.opened !== null;
      if (again) record.resumed = (record.resumed ?? 0) + 1;
      elsewhere = mine.broken = false;
      if (seen.opened === null) close = poll(400, () => look(talk, mine));
      seen.open(now, headers, again);
      mine.life.change();
      mine.turn?.says(record.answer ? 'answering' : waiting);
    },
    onBreak: (attempt, failure) => {
      mine.broken = true;
      const what = failure.status === undefined ? (record.id ? 'connection broken' : 'no answer from api-service') : failure.ending.message;
      mine.turn?.says(`${what}, ${record.id ? 'resuming' : 'trying again'} (${attempt})…`);
    },
    onFrame: (now) => {
      seen.frame(now);
      mine.life.change();
    },
    onAside: ({ thought, called }) => {
      record.thought = (record.thought ?? '') + thought;
      record.called = (record.called ?? '') + called;
      mine.turn?.aside(thought, called);
    },
    onText: (more) => {
      record.answer += more;
      mine.turn?.add(more);
      if (talk === chat) announcer.add(more);
    },
  });
  seen.ended = seen.at();
  close();
  mine.life.change();
  if (seen.stopped !== null && ['user_stop', 'operator_stop'].includes(ending.code)) ending.kind = 'stopped';
  ending.resumed = record.resumed ?? 0;
  mine.token = record.open.token;
  Object.assign(record, { kind: ending.kind, line: describe(ending), id: record.id || (ending.id ?? '') });
  if (ending.kind !== 'lost') delete record.open;
  mine.turn?.name(record.id);
  mine.turn?.end(record);
  if (!mine.forgotten) chats.keep(talk);
  running.delete(talk);
  tell(mine);
  listChats();
  if (talk !== chat) return;
  announcer.end(record.line);
  if (ending.status === 401) problem.tell('The server wants a key.', ending);
  if (!record.answer && ending.kind !== 'completed' && !prompt.value) prompt.value = record.question;
  showControls();
}

// attach shows an answer in progress in a turn.
function attach(mine, turn) {
  mine.turn = turn;
  shown?.turn.picture();
  shown = { turn, life: mine.life };
  place();
  showControls();
}

// show adds a turn to the page. Retry asks its question again, without the old answer; Resume reads
// on where api-service did not answer.
function show(record) {
  const turn = new Turn($('turns'), record, {
    retry: () => {
      send(record.question, () => {
        record.retried = true;
        turn.retried();
      });
    },
    edit: () => edit(record),
    resume: () => showChat(chat),
  });
  return turn;
}

// edit puts the question of a record into the composer, or null for none.
function edit(record) {
  editing = record;
  $('editing').hidden = !record;
  if (!record) return;
  prompt.value = record.question;
  prompt.focus();
}

// address names a chat: from its first question on it has an address.
function address(talk) {
  talk.id = unique().slice(0, 12);
  talk.began = Date.now();
  history.replaceState(null, '', `#/chats/${talk.id}`);
  $('chat-link').href = `#/chats/${talk.id}`;
}

// look shows what the hops say of an answer in progress, if its chat is shown.
async function look(talk, { record, seen, life, turn }) {
  if (talk !== chat) return;
  try {
    const told = await story(record.id);
    if (seen.ended !== null) return;
    life.tell(told);
    turn?.tells(told);
  } catch {
    // the next look may succeed
  }
}

// tell adds the story of the stream once the hops have it. A request that the edge refused has no
// stream, and so no story.
async function tell({ record, seen, life, turn, token }) {
  if (!record.id || record.open) {
    turn?.tell(null);
    return;
  }
  const how = seen.headers && seen.gaps.report(seen.headers);
  if (how) await report(record.id, token, how).catch(() => {}); // the story is useful without the report, too
  try {
    const told = await settled(record.id);
    life.tell(told);
    turn?.tell(told);
  } catch {
    turn?.tell(null);
  }
}

// place puts the picture beside the conversation or, on a narrow screen, below its answer, folded,
// so that the answer stays in view.
function place() {
  if (!shown) $('beside').replaceChildren();
  else if (wide.matches) {
    shown.turn.picture();
    $('beside').replaceChildren(shown.life.node);
  }
  else shown.turn.picture(shown.life.node);
  $('beside').hidden = !(shown && wide.matches);
}

// requestFor returns the request for the current settings. An empty field is left to the server.
function requestFor(messages) {
  const number = (id) => ($(id).value === '' ? undefined : Number($(id).value));
  const system = $('system').value.trim();
  const stops = $('stop-strings').value.split('\n').filter((line) => line !== '');
  return {
    model: $('model').value,
    messages: system ? [{ role: 'system', content: system }, ...messages] : messages,
    stream: true,
    stream_options: { include_usage: true },
    temperature: number('temperature'),
    top_p: number('top-p'),
    max_tokens: number('max-tokens'),
    seed: number('seed'),
    stop: stops.length > 0 ? stops : undefined,
  };
}

// settingsReadable focuses a field that is not a number. The server decides whether a number is in
// range.
function settingsReadable() {
  if ($('settings').checkValidity()) return true;
  settings.open();
  $('settings').reportValidity();
  return false;
}

// showControls shows Send or, while an answer of this chat is in progress, Stop.
function showControls() {
  const focused = document.activeElement;
  const answering = running.has(chat);
  $('send').hidden = answering;
  $('stop').hidden = !answering;
  if (focused === $('send') || focused === $('stop') || focused === document.body || focused?.closest('.examples')) {
    // The button that had the focus is gone. On a phone, focus in the text field would cover the answer
    // with the keyboard.
    if (matchMedia('(hover: hover)').matches) prompt.focus({ preventScroll: true });
    else if (answering) $('stop').focus({ preventScroll: true });
  }
}

// stop stops the answer of this chat.
function stop() {
  const mine = running.get(chat);
  if (!mine) return;
  if (mine.record) halt(mine);
  else { // the models are still loading
    running.delete(chat);
    showControls();
  }
}

// halt asks the server to end a stream, so that the reader gets the ending. If no hop knows the
// stream, because it has not begun or the server is gone, the page leaves it.
function halt({ seen, record, controller, broken }) {
  if (seen.stopped !== null) return;
  seen.stopped = seen.at();
  const abort = () => controller.abort();
  const soon = () => setTimeout(abort, patience);
  if (record.id) stopStream(record.id).then(soon, abort);
  else if (broken) abort();
  else soon(); // until then the answer to the request may come
}

// showChat shows another chat: a new one, or one of the storage. Answers in progress continue, and
// one that another page has begun is resumed.
function showChat(next = { turns: [] }) {
  for (const mine of running.values()) mine.turn = null;
  edit(null);
  chat = next;
  $('chat-link').href = chat.id ? `#/chats/${chat.id}` : '#/';
  $('turns').replaceChildren();
  shown = null;
  place();
  announcer.clear();
  $('lost').hidden = true;
  $('empty').hidden = chat.turns.length > 0;
  for (const record of chat.turns) {
    const turn = show(record);
    if (!record.open) turn.end(record);
    else if (running.get(chat)?.record === record) attach(running.get(chat), turn);
    else run(chat, record, turn);
  }
  showControls();
  if (chat.turns.length > 0) toEnd();
  listChats();
}

function listChats() {
  const all = chats.list();
  $('earlier').hidden = all.length === 0;
  const answering = new Set([...running.keys()].map(({ id }) => id));
  refill($('earlier').querySelector('ul'), ...all.map(({ id, began, turns }) => node('li', {},
    node('a', { href: `#/chats/${id}`, 'aria-current': id === chat.id && 'true' }, turns[0].question.trim().slice(0, 80)),
    ` ${answering.has(id) ? 'answering' : new Date(began).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' })}`)));
}

// placeChats puts the list of chats beside the conversation or, on a narrower screen, on the page of
// the empty chat.
function placeChats() {
  if (widest.matches) $('panel').prepend($('earlier'));
  else $('empty').append($('earlier'));
}

// open shows the chat that the address names.
function open(id) {
  if ((id ?? '') === (chat.id ?? '')) return;
  const found = id && ([...running.keys()].find((talk) => talk.id === id) ?? chats.find(id));
  showChat(found || undefined);
  if (id && !found) {
    $('lost').textContent = 'This browser does not have this chat: it was started in another browser, or removed after later chats.';
    $('lost').hidden = false;
  }
}

// looks returns what tells two versions of a chat apart.
const looks = ({ turns }) => JSON.stringify(turns.map(({ question, id, retried }) => [question, id, retried]));

// followTabs shows what another tab has stored.
function followTabs() {
  listChats();
  const found = chat.id && !running.has(chat) && chats.find(chat.id);
  if (found && looks(found) !== looks(chat)) showChat(found);
}

// resume reads on the answers that the last page of this browser left, also those of chats that are
// not shown.
function resume() {
  for (const talk of chats.list().slice(0, resumable)) {
    const record = talk.turns.at(-1);
    if (record.open && talk.id !== chat.id) run(talk, record);
  }
}

// showCurl shows the last request as a command for the chosen API.
function showCurl() {
  const api = $('curl-api').value;
  const left = missing(asked, api);
  $('curl').textContent = curl(location.origin, asked, apiKey() !== '', api);
  $('curl').hidden = $('copy-curl').hidden = $('curl-choice').hidden = false;
  $('curl-hint').textContent = `Without ${left.join(' and ')}, which this API does not have.`;
  $('curl-hint').hidden = left.length === 0;
}

async function loadModels() {
  try {
    const ids = await models();
    if (ids.length === 0) throw new Error('the server has none');
    const chosen = $('model').value;
    $('model').replaceChildren(...ids.map((id) => new Option(id, id, false, id === chosen)));
    problem.clear();
  } catch (err) {
    problem.tell(`No model to talk to: ${err.message}. Sending a message tries again.`, err);
  }
}

// followKey uses each key that the reader gives, here or on another page.
function followKey() {
  $('key').value = apiKey();
  anotherKey().then(() => {
    followKey();
    loadModels();
  });
}

// chatPage sets the chat up, and returns a function that shows a chat and focuses the text field.
export function chatPage() {
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send(prompt.value);
  });
  $('settings').addEventListener('submit', (event) => event.preventDefault());
  $('keep').addEventListener('click', () => {
    edit(null);
    prompt.value = '';
    prompt.focus();
  });
  $('key').addEventListener('change', () => useKey($('key').value));
  prompt.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send(prompt.value);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !event.isComposing && !$('chat').hidden) stop();
  });
  $('stop').addEventListener('click', (event) => {
    if (event.detail < 2) stop(); // the second click of a double click on Send must not stop the stream
  });
  $('new').addEventListener('click', () => {
    if (chat.id) history.pushState(null, '', '#/');
    showChat();
    prompt.focus();
  });
  $('forget').addEventListener('click', () => {
    chats.clear();
    for (const [talk, mine] of running) {
      if (talk === chat || !mine.record) continue;
      mine.forgotten = true;
      halt(mine);
    }
    listChats();
    prompt.focus();
  });
  addEventListener('pagehide', () => { // the part of the answers that has come
    for (const [talk, mine] of running) if (mine.record && !mine.forgotten) chats.keep(talk);
  });
  addEventListener('storage', ({ key }) => key === stored && followTabs());
  $('curl-api').replaceChildren(...Object.keys(apis).map((name) => new Option(name)));
  $('curl-api').addEventListener('change', showCurl);
  $('copy-curl').addEventListener('click', () => copy($('copy-curl'), $('curl').textContent, $('curl')));
  $('examples').addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button) send(button.textContent);
  });
  wide.addEventListener('change', place);
  widest.addEventListener('change', placeChats);
  placeChats();
  $('log').querySelector('.column').prepend(problem.node);
  followKey();
  loadModels();
  listChats();
  let first = true;
  return (id) => {
    open(id);
    if (first) resume();
    first = false;
    if (matchMedia('(hover: hover)').matches) prompt.focus();
  };
}
