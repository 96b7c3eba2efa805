// Search and order of listed streams: the pure step between the list and its table.

import { wall } from './words.js';

// The keys by which streams can be ordered. Each returns a number or a text.
export const keys = {
  began: (stream) => wall(stream.hops[0].began),
  id: (stream) => stream.id,
  reason: (stream) => stream.reason ?? stream.state,
  tokens: (stream) => stream.tokens.delivered,
  took: (stream) => stream.hops[0].took_ms,
};

// choose returns the streams that contain every word of a search, in the order of a key.
export function choose(streams, { search = '', sort = 'began', descending = true } = {}) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const key = keys[sort] ?? keys.began;
  const found = streams.filter((stream) => {
    const text = [stream.id, stream.state, stream.reason, stream.origin, stream.model, stream.message, stream.hops[0].peer, ...(stream.path ?? []), ...(stream.workers ?? [])].filter(Boolean).join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b) : a - b);
  return found.sort((a, b) => (descending ? -1 : 1) * compare(key(a), key(b)));
}

// pageOf returns one page of a list, and the number of pages; a page that does not exist becomes the
// last one.
export function pageOf(list, page, size) {
  const pages = Math.max(1, Math.ceil(list.length / size));
  const at = Math.min(Math.max(1, page), pages);
  return { rows: list.slice((at - 1) * size, at * size), at, pages };
}
