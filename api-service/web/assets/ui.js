// The chat's moving parts. Whatever a model or a server says reaches the page as text nodes only.

import { describe } from './ending.js';
import { delivered, longest, pathOf, sentence } from './hops.js';
import { node } from './node.js';

// A Turn is one question and its answer on the page.
export class Turn {
  #answer;
  #called = null;
  #thought = null;
  #ending;
  #id;
  #node;
  #told;
  #pending = '';
  #frame = 0;

  // place is for the picture of the stream.
  place;

  constructor(list, question, model, id) {
    const root = document.getElementById('turn').content.cloneNode(true);
    const text = (selector, value) => {
      const node = root.querySelector(selector);
      node.textContent = value;
      return node;
    };
    text('.question', question);
    text('.answerer', model);
    this.#node = document.createTextNode('');
    this.#answer = root.querySelector('.answer');
    this.#answer.append(this.#node);
    this.#ending = text('.ending', 'waiting for the first token');
    this.#told = root.querySelector('.told');
    this.place = root.querySelector('.place');
    this.#id = text('.id', id);
    this.#id.setAttribute('aria-label', `Copy the stream id ${id}`);
    this.#id.addEventListener('click', () => copy(this.#id, id));
    root.querySelector('.more').href = `#/streams/${id}`;
    list.append(root);
  }

  // add shows more text, at most once a frame: engines are faster than screens.
  add(text) {
    this.#pending += text;
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  // aside shows what the model thinks above its answer, and what it calls below.
  aside(thought, called) {
    if (thought) (this.#thought ??= this.#beside('thought', 'before')).append(thought);
    if (called) (this.#called ??= this.#beside('called', 'after')).append(called);
  }

  #beside(kind, where) {
    const pre = node('pre', { class: kind });
    this.#answer[where](pre);
    return pre;
  }

  #flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (!this.#pending) return;
    if (this.#node.length === 0) this.#ending.textContent = 'answering';
    this.#node.appendData(this.#pending);
    this.#pending = '';
  }

  // end shows the ending and returns it as people read it.
  end(ending) {
    this.#flush(); // a hidden tab draws no frames
    const line = describe(ending);
    this.#ending.textContent = line;
    this.#ending.dataset.kind = ending.kind;
    this.#answer.removeAttribute('aria-busy');
    return line;
  }

  // tell shows what the hops told of the ending; null if they know nothing.
  tell(story) {
    const more = this.#told.querySelector('.more');
    if (story) {
      const how = delivered(story, true);
      this.#told.replaceChildren(pathOf(longest(story)), node('p', {}, `${story.reason ?? story.state}; ${sentence(story)} `, more), ...(how ? [how] : []));
    } else more.remove();
    this.#told.hidden = !story;
  }
}

// follow keeps the end of the turns in view as they grow, unless the reader has scrolled up. It returns a function that
// goes to the end. button shows while there is more below.
export function follow(scroller, turns, button) {
  let following = true;
  let last = 0;
  const atEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 16;
  const showButton = () => (button.hidden = following || atEnd() || turns.childElementCount === 0);
  const toEnd = () => {
    following = true;
    scroller.scrollTop = scroller.scrollHeight;
    last = scroller.scrollTop;
    showButton();
  };
  scroller.addEventListener('scroll', () => {
    // Only a move upwards is the reader's: content that grew may have left us short of the end for a moment.
    if (atEnd()) following = true;
    else if (scroller.scrollTop < last) following = false;
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

// copy puts text on the clipboard and says so on the button. Where there is no clipboard (plain HTTP to another host) it
// selects the text of source instead, so that the usual key copies it.
export async function copy(button, text, source = button) {
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.copied = '';
    setTimeout(() => delete button.dataset.copied, 1200);
  } catch {
    getSelection().selectAllChildren(source);
  }
}

// panel makes the button show and hide the panel. Until it is used, the style sheet decides: shown where there is room.
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
