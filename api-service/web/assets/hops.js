// What hops tell of a stream, in words: the path of its ending, the sentence that sums it up, and the table.

import { node } from './node.js';
import { count, duration, handed, left, mood } from './words.js';

// longest returns the path of the ending as the hop told it to which it went last.
export function longest(story) {
  return story.hops.map(({ path }) => path ?? []).reduce((long, path) => (path.length > long.length ? path : long), story.path ?? []);
}

// pathOf draws a path as hops with arrows between them.
export function pathOf(path) {
  return node('ol', { class: 'path', 'aria-label': 'Path of the ending' }, path.map((hop, i) => node('li', {},
    i > 0 && node('span', { class: 'arrow', 'aria-hidden': 'true' }, ' → '), node('span', { class: 'stop' }, hop))));
}

// sentence says what became of a stream, beside its reason.
export function sentence(story) {
  const first = story.hops[0];
  const { prompt, cached, delivered, wasted } = story.tokens;
  if (story.state === 'live') return `runs for ${duration(first.took_ms)}; ${count(delivered, 'token')} delivered`;
  const parts = [];
  if (story.reason !== 'completed' && first.stop_confirmed_ms !== null) parts.push(`the engine had stopped after ${duration(first.stop_confirmed_ms)}`);
  if (story.reason === 'completed') parts.push(`${count(delivered, 'token')} delivered`);
  if (story.reason !== 'completed' || wasted > 0) parts.push(`${count(wasted, 'token')} wasted`);
  if (story.extent) parts.push(left(story.extent));
  if (cached > 0) parts.push(`${cached} of the prompt's ${count(prompt, 'token')} cached`);
  return parts.join('; ');
}

// delivered says how a stream came to its client; null where nobody has told, or nothing is wrong and quiet is asked for.
export function delivered({ delivery }, quiet = false) {
  const { verdict, proxy, tokens, sent, seen } = delivery ?? {};
  switch (verdict) {
    case 'buffered': {
      const who = proxy === 'a proxy' ? '' : ` (${proxy})`;
      const remedy = /^nginx/.test(proxy) ? 'proxy_buffering off in its configuration mends it' : 'Its buffering, compression or cache is to be switched off';
      return node('p', { class: 'problem delivery' },
        `A proxy between browser and api-service${who} collects tokens: ${count(seen.events, 'event')}, sent in ${sent.bursts} bursts, came in ${seen.bursts}. ${remedy}: see “Does a proxy collect tokens?” in docs/operations.md.`);
    }
    case 'merged':
      return node('p', { class: 'hint delivery' }, `api-service sent ${count(tokens, 'token')} in ${count(sent.events, 'event')}: the engine makes several at once, or the browser reads slowly.`);
    case 'flowing':
      return quiet ? null : node('p', { class: 'hint delivery' }, `Events came as they were sent${proxy ? `, through ${proxy}` : ''}: ${count(seen.bursts, 'burst')} of ${sent.bursts}.`);
    default:
      return null;
  }
}

// chip is a reason, coloured by what it means.
export function chip(reason, state) {
  return node('span', { class: 'chip', 'data-mood': mood(reason, state) }, state === 'live' ? 'live' : reason || state);
}

const columns = ['Hop', 'State', 'Took', 'Tokens in', 'Tokens out', 'Stop heard', 'Stopped below', 'Ending'];

// tableOf lists the hops, as `whence why` prints them.
export function tableOf(story) {
  const rows = story.hops.flatMap((hop) => {
    const cells = [
      node('th', { scope: 'row' }, hop.hop), hop.state, duration(hop.took_ms), hop.tokens_in, hop.tokens_out,
      hop.stop_heard_ms === null ? '–' : `after ${duration(hop.stop_heard_ms)}`,
      hop.stop_confirmed_ms === null ? '–' : `${duration(hop.stop_confirmed_ms)} later`,
      hop.reason ? `${hop.reason}: ${(hop.path ?? []).join(' > ')}` : '–',
    ].map((cell, i) => (i === 0 ? cell : node('td', { 'data-label': columns[i], class: i > 1 && i < 7 ? 'number' : null }, String(cell))));
    const moves = (hop.moves ?? []).map((move) => node('tr', { class: 'move' }, node('td', { colspan: columns.length },
      `moved from ${move.from} to ${move.to} after ${duration(move.at_ms)} and ${count(move.tokens, 'token')}: ${move.reason}`)));
    const handovers = (hop.handovers ?? []).map((over) => node('tr', { class: over.reason === 'completed' ? null : 'move' }, node('td', { colspan: columns.length }, handed(over))));
    return [node('tr', {}, cells), ...handovers, ...moves];
  });
  return node('table', { class: 'hops' }, node('caption', { class: 'unseen' }, 'What each hop tells'),
    node('thead', {}, node('tr', {}, columns.map((name, i) => node('th', { scope: 'col', class: i > 1 && i < 7 ? 'number' : null }, name)))), node('tbody', {}, rows));
}
