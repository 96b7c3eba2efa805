// The page: a conversation, the settings of its next request, and one answer at a time.

import { Announcer } from './announce.js';
import { ask, curl, models } from './chat.js';
import { copy, follow, panel, Turn } from './ui.js';

const $ = (id) => document.getElementById(id);
const prompt = $('prompt');
const announcer = new Announcer($('announcer'));
const toEnd = follow($('log'), $('turns'), $('latest'));
const settings = panel($('toggle'), $('panel'));

let history = []; // the messages of the turns that have an answer
let answering = null; // the AbortController of the answer that is under way

// send asks a question, unless an answer is under way.
async function send(question) {
  if (answering || !question.trim() || !settingsReadable()) return;
  const controller = new AbortController();
  setAnswering(controller);
  if (!$('model').value) await loadModels();
  if (answering !== controller) return; // stopped before it began
  if (!$('model').value) {
    setAnswering(null);
    return;
  }

  if (prompt.value === question) prompt.value = '';
  const messages = [...history, { role: 'user', content: question }];
  const request = requestFor(messages);
  showCurl(request);
  $('empty').hidden = true;
  announcer.clear();
  const turn = new Turn($('turns'), question, request.model);
  toEnd();

  let text = '';
  const ending = await ask(request, {
    signal: controller.signal,
    onOpen: (id) => (turn.id = id),
    onText: (more) => {
      text += more;
      turn.add(more);
      if (answering === controller) announcer.add(more);
    },
  });
  const line = turn.end(ending);
  if (answering !== controller) return; // a new chat has begun meanwhile
  announcer.end(line);
  // A turn without an answer would leave two questions in a row, which chat templates refuse, and a refused question
  // would be refused again: leave it out, and give it back for another try.
  if (text) history = [...messages, { role: 'assistant', content: text }];
  else if (ending.kind !== 'completed' && !prompt.value) prompt.value = question;
  setAnswering(null);
}

// requestFor returns the request that the settings ask for. A field that is left empty is left to the server.
function requestFor(messages) {
  const number = (id) => ($(id).value === '' ? undefined : Number($(id).value));
  const system = $('system').value.trim();
  return {
    model: $('model').value,
    messages: system ? [{ role: 'system', content: system }, ...messages] : messages,
    stream: true,
    stream_options: { include_usage: true },
    temperature: number('temperature'),
    max_tokens: number('max-tokens'),
    seed: number('seed'),
  };
}

// settingsReadable sends people to a field that is no number. Whether a number makes sense is for the server to say.
function settingsReadable() {
  if ($('settings').checkValidity()) return true;
  settings.open();
  $('settings').reportValidity();
  return false;
}

function setAnswering(controller) {
  const focused = document.activeElement;
  answering = controller;
  $('send').hidden = Boolean(controller);
  $('stop').hidden = !controller;
  if (focused === $('send') || focused === $('stop') || focused === document.body || focused?.closest('.examples')) {
    // The button that had the focus is gone. On a phone, focus in the text would cover the answer with the keyboard.
    if (matchMedia('(hover: hover)').matches) prompt.focus({ preventScroll: true });
    else if (controller) $('stop').focus({ preventScroll: true });
  }
}

function stop() {
  answering?.abort();
}

function newChat() {
  stop();
  setAnswering(null);
  history = [];
  $('turns').replaceChildren();
  $('empty').hidden = false;
  announcer.clear();
  prompt.focus();
}

function showCurl(request) {
  $('curl').textContent = curl(location.origin, request);
  $('curl').hidden = $('copy-curl').hidden = false;
  $('curl-hint').hidden = true;
}

async function loadModels() {
  const problem = $('problem');
  try {
    const ids = await models();
    if (ids.length === 0) throw new Error('the server has none');
    $('model').replaceChildren(...ids.map((id) => new Option(id, id)));
    problem.hidden = true;
  } catch (err) {
    problem.textContent = `No model to talk to: ${err.message}. Sending a message tries again.`;
    problem.hidden = $('empty').hidden = false;
  }
}

$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send(prompt.value);
});
$('settings').addEventListener('submit', (event) => event.preventDefault());
prompt.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send(prompt.value);
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !event.isComposing) stop();
});
$('stop').addEventListener('click', (event) => {
  if (event.detail < 2) stop(); // the second half of a double click on Send is no wish to stop
});
$('new').addEventListener('click', newChat);
$('copy-curl').addEventListener('click', () => copy($('copy-curl'), $('curl').textContent, $('curl')));
$('examples').addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (button) send(button.textContent);
});

loadModels();
if (matchMedia('(hover: hover)').matches) prompt.focus();
