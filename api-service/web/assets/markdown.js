// Markdown as elements. marked (marked.js, a copy of its release) reads the text; this file makes
// the elements. No text of an answer is parsed as HTML, and no answer makes the browser load
// anything: HTML is shown as text, and an image is a link.

import { highlight } from './highlight.js';
import { lexer } from './marked.js';
import { node } from './node.js';

// More characters than longest without an end of a block are shown as plain text: the time to read
// them can grow with the square of their number.
const longest = 16_000;

const plain = (text) => ({ type: 'plain', raw: text, text });

// blocks returns the top-level blocks of a text. A text that is too long or too deeply nested becomes
// plain text.
export function blocks(text) {
  if (text.length > longest) {
    const end = text.lastIndexOf('\n\n') + 2;
    return end > 1 && text.length - end <= longest ? [plain(text.slice(0, end)), ...blocks(text.slice(end))] : [plain(text)];
  }
  try {
    return [...lexer(text, { gfm: true, breaks: true })];
  } catch (err) {
    if (!(err instanceof RangeError)) throw err;
    return [plain(text)]; // the stack is full
  }
}

// address returns the target of a link, or null unless the link leads to a web page or a mail.
export function address(href) {
  try {
    const url = new URL(href);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null; // a relative address would lead into the console
  }
}

function link(href, children) {
  const target = address(href);
  return target ? node('a', { href: target, target: '_blank', rel: 'noopener noreferrer nofollow' }, children) : children;
}

const inline = (tokens) => (tokens ?? []).flatMap((token) => {
  switch (token.type) {
    case 'strong': case 'em': case 'del':
      return node(token.type, {}, inline(token.tokens));
    case 'codespan':
      return node('code', {}, token.text);
    case 'br':
      return node('br', {});
    case 'link':
      return link(token.href, inline(token.tokens));
    case 'image':
      return link(token.href, [token.text || token.href]);
    case 'checkbox':
      return token.checked ? '☑ ' : '☐ ';
    case 'text':
      return token.tokens ? inline(token.tokens) : token.text;
    case 'escape':
      return token.text;
    default:
      return token.raw; // such as HTML
  }
});

// element returns the element of a block, or null for a block that shows nothing. copyButton, if
// given, returns the button that copies a code block.
export function element(token, copyButton) {
  const inside = (tokens) => tokens.map((each) => element(each, copyButton));
  switch (token.type) {
    case 'space': case 'def':
      return null;
    case 'plain':
      return node('p', { class: 'plain' }, token.text);
    case 'heading':
      return node('h3', { class: `depth${token.depth}` }, inline(token.tokens));
    case 'hr':
      return node('hr', {});
    case 'code': {
      const code = node('code', {}, token.text);
      if (copyButton) highlight(code, token.text, token.lang); // once it is complete
      return node('div', { class: 'code' }, node('div', { class: 'line' }, node('span', {}, token.lang || 'text'), copyButton?.(token.text)),
        node('pre', { tabindex: '0', role: 'region', 'aria-label': 'Code' }, code));
    }
    case 'blockquote':
      return node('blockquote', {}, inside(token.tokens));
    case 'list':
      return node(token.ordered ? 'ol' : 'ul', { start: token.ordered && token.start !== 1 && String(token.start) },
        token.items.map((item) => node('li', {}, inside(item.tokens))));
    case 'table':
      return table(token);
    case 'paragraph':
      return node('p', {}, inline(token.tokens));
    case 'html':
      return node('p', { class: 'plain' }, token.raw.trimEnd());
    default: // the text of a list item
      return node('span', {}, inline([token]));
  }
}

function table({ header, rows }) {
  const cells = (name, all) => node('tr', {}, all.map(({ tokens, align }) => node(name, { scope: name === 'th' && 'col', class: align === 'right' && 'number' }, inline(tokens))));
  return node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' },
    node('table', {}, node('thead', {}, cells('th', header)), node('tbody', {}, rows.map((row) => cells('td', row)))));
}

// A Document is a growing text in an element. Text that arrives later can only change the last
// block, so only that is read again.
export class Document {
  #root;
  #copyButton;
  #rest = ''; // the text of the last block
  #last = []; // the elements of the last block

  constructor(root, copyButton) {
    this.#root = root;
    this.#copyButton = copyButton;
  }

  add(text) {
    this.#rest += text.replaceAll('\r', ''); // marked changes CRLF to LF
    this.#show(blocks(this.#rest), false);
  }

  // end shows the last block as complete.
  end() {
    this.#show(blocks(this.#rest), true);
    this.#rest = '';
    this.#last = [];
  }

  #show(tokens, complete) {
    for (const old of this.#last) old.remove();
    this.#last = [];
    // The block before a blank line can still continue: a list does.
    const open = complete ? tokens.length : Math.max(0, tokens.findLastIndex(({ type }) => type !== 'space'));
    const build = (token, copyButton) => {
      const made = element(token, copyButton);
      if (made) this.#root.append(made);
      return made;
    };
    for (const token of tokens.slice(0, open)) build(token, this.#copyButton);
    // raw is as long as its part of the text, but not always equal to it.
    this.#rest = this.#rest.slice(tokens.slice(0, open).reduce((length, { raw }) => length + raw.length, 0));
    this.#last = tokens.slice(open).map((token) => build(token)).filter(Boolean);
  }
}
