// The chat's moving parts. Text from a model or a server reaches the page only as text nodes.

import { delivered, happened, pathOf, sentence } from './hops.js';
import { Document } from './markdown.js';
import { node } from './node.js';
import { longest } from './tree.js';

// waiting is what a turn says before the first token.
export const waiting = 'waiting for the first token';

// A Turn is one question and its answer on the page.
export class Turn {
  #answer;
  #document;
  #retry;
  #text = '';
  #called = null;
  #thought = null;
  #ending;
  #id;
  #told;
  #pending = '';
  #frame = 0;
  #earliest = 0;

  #place;
  #moves;
  #resume;

  // retry is called when the reader asks again, edit when the reader wants to change the question, and
  // resume when the reader wants the rest of an answer.
  constructor(list, record, { retry, edit, resume }) {
    const root = document.getElementById('turn').content.cloneNode(true);
    const text = (selector, value) => {
      const node = root.querySelector(selector);
      node.textContent = value;
      return node;
    };
    text('.question', record.question);
    text('.answerer', record.model);
    this.#answer = root.querySelector('.answer');
    this.#document = new Document(this.#answer, copier);
    this.#ending = text('.ending', '');
    this.#moves = root.querySelector('.moves');
    this.#told = root.querySelector('.told');
    this.#place = root.querySelector('.place');
    this.#id = root.querySelector('.id');
    this.#id.addEventListener('click', () => copy(this.#id, this.#id.textContent));
    const copyAnswer = root.querySelector('.copy');
    copyAnswer.addEventListener('click', () => copy(copyAnswer, this.#text, this.#answer));
    this.#retry = root.querySelector('.retry');
    this.#retry.addEventListener('click', retry);
    root.querySelector('.edit').addEventListener('click', edit);
    this.#resume = root.querySelector('.resume');
    this.#resume.addEventListener('click', resume);
    this.name(record.id);
    this.says('waiting for api-service');
    list.append(root);
    if (record.thought || record.called) this.aside(record.thought, record.called);
    if (record.answer) this.add(record.answer);
  }

  // name shows the id of the stream, once it is known.
  name(id) {
    this.#id.hidden = !id;
    this.#id.textContent = id;
    this.#id.setAttribute('aria-label', `Copy the stream id ${id}`);
    const more = this.#told.querySelector('.more');
    if (more) more.hidden = !id;
    if (more && id) more.href = `#/streams/${id}`;
  }

  // says shows what the page waits for.
  says(text) {
    this.#ending.textContent = text;
  }

  // tells tells above the answer how the stream has moved, and who has stopped it, unless this page has.
  tells(story) {
    const told = this.#ending.dataset.kind === 'stopped' ? [] : happened(story);
    this.#moves.hidden = told.length === 0;
    this.#moves.replaceChildren(...told.map((text) => node('p', {}, text)));
  }

  // add shows more text, at most once per animation frame: engines are faster than screens.
  add(text) {
    this.#pending += text;
    this.#text += text;
    this.#frame ||= requestAnimationFrame(() => this.#soon());
  }

  // aside shows the reasoning above the answer, and the tool calls below.
  aside(thought, called) {
    if (thought) (this.#thought ??= this.#beside('thought', 'before')).append(thought);
    if (called) (this.#called ??= this.#beside('called', 'after')).append(called);
  }

  // picture shows the picture of the stream below the answer, folded; without an argument it removes
  // the picture.
  picture(drawing) {
    this.#place.hidden = !drawing;
    this.#place.querySelector('.timeline').replaceChildren(...(drawing ? [drawing] : []));
  }

  #beside(kind, where) {
    const pre = node('pre', { class: kind });
    this.#answer[where](pre);
    return pre;
  }

  // #soon shows the text now, or later if the last time took long: most of the time is for the rest of
  // the page.
  #soon() {
    const now = performance.now();
    if (now < this.#earliest) {
      this.#frame = requestAnimationFrame(() => this.#soon());
      return;
    }
    this.#flush();
    this.#earliest = now + 5 * (performance.now() - now);
  }

  #flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (!this.#pending) return;
    if (this.#ending.textContent === waiting) this.says('answering');
    this.#document.add(this.#pending);
    this.#pending = '';
  }

  // end shows the ending of a record.
  end({ kind, line, open, retried }) {
    this.#flush(); // a hidden tab has no animation frames
    this.#document.end();
    this.#retry.parentElement.hidden = false;
    this.#retry.previousElementSibling.hidden = !this.#text;
    this.#ending.textContent = line;
    this.#ending.dataset.kind = kind;
    this.#resume.hidden = !open;
    this.#answer.removeAttribute('aria-busy');
    if (retried) this.retried();
  }

  // retried shows that the question was asked again.
  retried() {
    this.#ending.append(' · asked again below');
  }

  // tell shows the hops' story of the ending; null if the hops know nothing.
  tell(story) {
    const more = this.#told.querySelector('.more');
    if (story) {
      this.tells(story);
      const how = delivered(story, true);
      this.#told.replaceChildren(pathOf(longest(story)), node('p', {}, `${story.reason ?? story.state}; ${sentence(story)} `, more), ...(how ? [how] : []));
    } else more.remove();
    this.#told.hidden = !story;
  }
}

const near = 16; // pixels within which a view is at the end of an answer
const margin = 44; // pixels of a view below the end of an answer, for the folded picture

// followEnd keeps the end of the last answer in view as the answer grows, unless the reader has
// scrolled away. It returns a function that scrolls there. button is visible while the end of the
// answer is further below.
export function followEnd(scroller, turns, button) {
  let following = true;
  let last = 0;
  // goal is where the end of the last answer is at the bottom of the view. The picture below the
  // answer does not count: it would push the answer out of sight.
  const goal = () => {
    const most = scroller.scrollHeight - scroller.clientHeight;
    const last = turns.lastElementChild?.querySelector('.told');
    if (!last) return most;
    const below = last.getBoundingClientRect().bottom - scroller.getBoundingClientRect().bottom;
    return Math.max(0, Math.min(most, scroller.scrollTop + below + margin));
  };
  const short = () => goal() - scroller.scrollTop;
  const showButton = () => (button.hidden = following || short() < near || turns.childElementCount === 0);
  const toEnd = () => {
    following = true;
    scroller.scrollTop = goal();
    last = scroller.scrollTop;
    showButton();
  };
  scroller.addEventListener('scroll', () => {
    // A downward move to above the end is not the reader's: after content has grown, the view may be
    // short of the end for a moment.
    if (Math.abs(short()) < near) following = true;
    else if (scroller.scrollTop < last || short() < 0) following = false;
    last = scroller.scrollTop;
    showButton();
  }, { passive: true });
  const observer = new ResizeObserver(() => {
    if (following && turns.childElementCount > 0) toEnd();
    else showButton();
  });
  observer.observe(scroller);
  observer.observe(turns);
  button.addEventListener('click', () => {
    toEnd();
    scroller.focus({ preventScroll: true }); // the button is gone
  });
  return toEnd;
}

// copier returns a button that copies a code block.
function copier(text) {
  const button = node('button', { type: 'button', 'aria-label': 'Copy the code' }, 'Copy');
  button.addEventListener('click', () => copy(button, text));
  return button;
}

// copy copies text to the clipboard and shows that on the button. Without a clipboard (plain HTTP
// to another host) it selects the text of source instead, so that the usual key copies it.
export async function copy(button, text, source = button) {
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.copied = '';
    setTimeout(() => delete button.dataset.copied, 1200);
  } catch {
    getSelection().selectAllChildren(source);
  }
}

// panel makes the button toggle the panel. Until the first use, the style sheet decides: the panel
// is shown if there is room.
export function panel(button, node) {
  const shown = () => getComputedStyle(node).display !== 'none';
  const set = (open) => {
    document.body.dataset.panel = open ? 'open' : 'closed';
    button.setAttribute('aria-expanded', String(open));
  };
  button.addEventListener('click', () => set(!shown()));
  addEventListener('resize', () => button.setAttribute('aria-expanded', String(shown())));
  button.setAttribute('aria-expanded', String(shown()));
  return { open: () => set(true) };
}
