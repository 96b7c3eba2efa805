// #/: a conversation, the settings of its next request, and one answer at a time.

import { Announcer } from './announce.js';
import { hasKey, models, settled, stop as stopStream, story, tell as report, useKey } from './api.js';
import { ask, mint } from './chat.js';
import { Chats, messagesOf } from './chats.js';
import { apis, curl, missing } from './curl.js';
import { Life } from './life.js';
import { node } from './node.js';
import { poll } from './poll.js';
import { remember, Seen } from './seen.js';
import { copy, follow, panel, Turn } from './ui.js';

const patience = 1500; // how long a stop may take before the page closes the connection instead

const $ = (id) => document.getElementById(id);
const prompt = $('prompt');
const announcer = new Announcer($('announcer'));
const toEnd = follow($('log'), $('turns'), $('latest'));
const settings = panel($('toggle'), $('panel'));
const wide = matchMedia('(min-width: 60rem)');

const chats = new Chats();

let chat = { turns: [] }; // it has an id from its first question on
let answering = null; // the current answer: {controller, seen, record}
let asked = null; // the last request
let shown = null; // the turn whose life is in the picture: {turn, life}

// send sends a question, unless an answer is in progress. replaced is called if the question is sent.
async function send(question, replaced = () => {}) {
  if (answering || !question.trim() || !settingsReadable()) return;
  const mine = { controller: new AbortController(), seen: null, record: null };
  setAnswering(mine);
  if (!$('model').value) await loadModels();
  if (answering !== mine) return; // stopped before the stream began
  if (!$('model').value) {
    setAnswering(null);
    return;
  }

  if (prompt.value === question) prompt.value = '';
  replaced();
  const messages = [...messagesOf(chat), { role: 'user', content: question }];
  const request = requestFor(messages);
  asked = request;
  showCurl();
  $('empty').hidden = true;
  announcer.clear();
  const seen = new Seen(mint());
  mine.seen = seen;
  remember(seen);
  const talk = chat;
  const record = { question, answer: '', model: request.model, id: seen.id, kind: 'cut', line: 'cut off — the page was closed' };
  mine.record = record;
  talk.turns.push(record);
  if (!talk.id) begin();
  const turn = show(record);
  const life = new Life(seen);
  shown?.turn.picture();
  shown = { turn, life };
  place();
  toEnd();
  let close = () => {};

  let ending = await ask(request, {
    id: seen.id,
    signal: mine.controller.signal,
    onOpen: (now, headers) => {
      seen.opened = seen.at(now);
      seen.headers = headers;
      life.change();
      close = poll(400, () => story(seen.id).then((told) => seen.ended === null && life.tell(told), () => {}));
    },
    onFrame: (now) => {
      seen.frame(now);
      life.change();
    },
    onAside: ({ thought, called }) => turn.aside(thought, called),
    onText: (more) => {
      record.answer += more;
      turn.add(more);
      if (answering === mine) announcer.add(more);
    },
  });
  seen.ended = seen.at();
  close();
  life.change();
  if (seen.stopped !== null && ending.code === 'user_stop') ending = { ...ending, kind: 'stopped' };
  const line = turn.end(ending);
  Object.assign(record, { kind: ending.kind, line });
  chats.keep(talk);
  tell(turn, life, seen, ending);
  if (answering !== mine) return; // a new chat has begun meanwhile
  announcer.end(line);
  if (!record.answer && ending.kind !== 'completed' && !prompt.value) prompt.value = question;
  setAnswering(null);
}

// show adds a turn to the page. Retry asks its question again, without the old answer.
function show(record) {
  const turn = new Turn($('turns'), record.question, record.model, record.id, () => {
    send(record.question, () => {
      record.retried = true;
      turn.retried();
    });
  });
  return turn;
}

// begin names the chat: from its first question on it has an address.
function begin() {
  chat.id = mint().slice(4, 16);
  chat.began = Date.now();
  history.replaceState(null, '', `#/chats/${chat.id}`);
  $('chat-link').href = `#/chats/${chat.id}`;
}

// tell adds the story of the stream once the hops have it. A request that the edge refused has no
// stream, and so no story.
async function tell(turn, life, seen, ending) {
  if (ending.kind === 'unreachable' || (ending.kind === 'refused' && ending.status < 500 && !ending.path.includes('>'))) {
    turn.tell(null);
    return;
  }
  const how = seen.headers && seen.gaps.report(seen.headers);
  if (how) await report(seen.id, how).catch(() => {}); // the story is useful without the report, too
  try {
    const told = await settled(seen.id);
    life.tell(told);
    turn.tell(told);
  } catch {
    turn.tell(null);
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

function setAnswering(answer) {
  const focused = document.activeElement;
  answering = answer;
  $('send').hidden = Boolean(answer);
  $('stop').hidden = !answer;
  if (focused === $('send') || focused === $('stop') || focused === document.body || focused?.closest('.examples')) {
    // The button that had the focus is gone. On a phone, focus in the text field would cover the answer
    // with the keyboard.
    if (matchMedia('(hover: hover)').matches) prompt.focus({ preventScroll: true });
    else if (answer) $('stop').focus({ preventScroll: true });
  }
}

// stop asks the server to end the stream, so that the reader gets the ending. If no hop knows the
// stream, because it has not begun or the server is gone, closing the connection ends it.
function stop() {
  const mine = answering;
  if (!mine || (mine.seen && mine.seen.stopped !== null)) return;
  if (!mine.seen) {
    mine.controller.abort();
    setAnswering(null);
    return;
  }
  mine.seen.stopped = mine.seen.at();
  const abort = () => mine.controller.abort();
  stopStream(mine.seen.id).then(() => setTimeout(abort, patience), abort);
}

// newChat shows another chat: a new one or, from the storage, an earlier one. A stream of the chat
// before it is stopped.
function newChat(next = { turns: [] }) {
  stop();
  setAnswering(null);
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
    turn.add(record.answer);
    turn.end({ kind: record.kind }, record.line);
    if (record.retried) turn.retried();
  }
  if (chat.turns.length > 0) toEnd();
  listChats();
}

function listChats() {
  const all = chats.list();
  $('earlier').hidden = all.length === 0;
  $('earlier').querySelector('ul').replaceChildren(...all.map(({ id, began, turns }) => node('li', {},
    node('a', { href: `#/chats/${id}` }, turns[0].question.trim().slice(0, 80)), ` ${new Date(began).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' })}`)));
}

// open shows the chat that the address names.
function open(id) {
  if ((id ?? '') === (chat.id ?? '')) return;
  const found = id && chats.find(id);
  newChat(found || undefined);
  if (id && !found) {
    $('lost').textContent = 'This browser does not have this chat: it was started in another browser, or removed after later chats.';
    $('lost').hidden = false;
  }
}

// showCurl shows the last request as a command for the chosen API.
function showCurl() {
  const api = $('curl-api').value;
  const left = missing(asked, api);
  $('curl').textContent = curl(location.origin, asked, hasKey(), api);
  $('curl').hidden = $('copy-curl').hidden = $('curl-choice').hidden = false;
  $('curl-hint').textContent = `Without ${left.join(' and ')}, which this API does not have.`;
  $('curl-hint').hidden = left.length === 0;
}

async function loadModels() {
  const problem = $('problem');
  try {
    const ids = await models();
    if (ids.length === 0) throw new Error('the server has none');
    const chosen = $('model').value;
    $('model').replaceChildren(...ids.map((id) => new Option(id, id, false, id === chosen)));
    problem.hidden = true;
  } catch (err) {
    problem.textContent = `No model to talk to: ${err.message}. Sending a message tries again.`;
    problem.hidden = $('empty').hidden = false;
  }
}

// chatPage sets the chat up, and returns a function that shows a chat and focuses the text field.
export function chatPage() {
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send(prompt.value);
  });
  $('settings').addEventListener('submit', (event) => event.preventDefault());
  $('key').addEventListener('change', () => {
    useKey($('key').value);
    loadModels();
  });
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
    newChat();
    prompt.focus();
  });
  $('forget').addEventListener('click', () => {
    chats.clear();
    listChats();
    prompt.focus();
  });
  addEventListener('pagehide', () => answering?.record && chats.keep(chat)); // the part of the answer that has come
  $('curl-api').replaceChildren(...Object.keys(apis).map((name) => new Option(name)));
  $('curl-api').addEventListener('change', showCurl);
  $('copy-curl').addEventListener('click', () => copy($('copy-curl'), $('curl').textContent, $('curl')));
  $('examples').addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button) send(button.textContent);
  });
  wide.addEventListener('change', place);
  loadModels();
  listChats();
  return (id) => {
    open(id);
    if (matchMedia('(hover: hover)').matches) prompt.focus();
  };
}
