// A stream's hops for display: the path of its ending, a one-sentence summary, and the table.

import { node } from './node.js';
import { renamer, tree } from './tree.js';
import { count, duration, handed, left, mood } from './words.js';

// pathOf draws a path as hops with arrows between them.
export function pathOf(path) {
  return node('ol', { class: 'path', 'aria-label': 'Path of the ending' }, path.map((hop, i) => node('li', {},
    i > 0 && node('span', { class: 'arrow', 'aria-hidden': 'true' }, ' → '), node('span', { class: 'stop' }, hop))));
}

// sentence summarizes what happened to a stream, besides its reason.
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

// The reasons for which a stream leaves a hop, as sentences about it.
const losses = { peer_lost: 'was lost', peer_reset: 'reset the stream', draining: 'shut down', unavailable: 'was unavailable', overloaded: 'was overloaded' };

// movesOf tells in a sentence each how a stream moved from one hop to another.
function movesOf(story) {
  const named = renamer(tree(story));
  const moves = story.hops.flatMap((hop) => hop.moves ?? []);
  const gap = story.hops[0].sent_pace?.longest_ms;
  return moves.map(({ from, to, reason, at_ms: at, tokens }, i) => {
    const why = losses[reason] ? `${/worker/.test(named(from)) ? 'the worker' : 'the hop'} ${losses[reason]}` : reason;
    const kept = i < moves.length - 1 ? '' : `; nothing was lost${gap > 0 ? `, and the longest gap between tokens was ${duration(gap)}` : ''}`;
    return `Moved from ${named(from)} to ${named(to)} after ${duration(at)} and ${count(tokens, 'token')}: ${why}${kept}.`;
  });
}

const stoppers = { user_stop: 'The client stopped the stream', operator_stop: 'An operator stopped the stream', client_gone: 'The client left' };

// stopOf tells in a sentence who stopped a stream. Without keys nobody knows whether a request to stop
// a stream came from its client, so the message of the ending names the address.
function stopOf({ reason, message, hops: [{ stop_heard_ms: heard, stop_confirmed_ms: confirmed }] }) {
  const [, address] = /^a request from (\S+) asked for the stream to stop$/.exec(message ?? '') ?? [];
  const who = reason === 'user_stop' && address ? `A request from ${address} stopped the stream` : stoppers[reason];
  if (!who || heard === null) return [];
  return [`${who} after ${duration(heard)}${confirmed === null ? '' : `; the engine had stopped ${duration(confirmed)} later`}.`];
}

// happened tells in sentences how a stream moved, and who stopped it.
export function happened(story) {
  return [...movesOf(story), ...stopOf(story)];
}

// delivered describes how a stream arrived at its client. It returns null without a report, or if
// nothing is wrong and quiet is set.
export function delivered({ delivery }, quiet = false) {
  const { verdict, proxy, tokens, sent, seen } = delivery ?? {};
  switch (verdict) {
    case 'buffered': {
      const who = proxy === 'a proxy' ? '' : ` (${proxy})`;
      const remedy = /^nginx/.test(proxy) ? 'proxy_buffering off in its configuration fixes that' : 'Switch its buffering, compression or cache off';
      return node('p', { class: 'problem delivery' },
        `A proxy between browser and api-service${who} collects tokens: ${count(seen.events, 'event')}, sent in ${sent.bursts} bursts, arrived in ${seen.bursts}. ${remedy}: see “Find a proxy that collects tokens” in docs/howto/proxies.md.`);
    }
    case 'merged':
      return node('p', { class: 'hint delivery' }, `api-service sent ${count(tokens, 'token')} in ${count(sent.events, 'event')}: the engine generates several at once, or the browser reads slowly.`);
    case 'flowing':
      return quiet ? null : node('p', { class: 'hint delivery' }, `Events arrived as they were sent${proxy ? `, through ${proxy}` : ''}: ${count(seen.bursts, 'burst')} of ${sent.bursts}.`);
    default:
      return null;
  }
}

// chip shows a reason, coloured by its mood.
export function chip(reason, state) {
  return node('span', { class: 'chip', 'data-mood': mood(reason, state) }, state === 'live' ? 'live' : reason || state);
}

const columns = ['Hop', 'State', 'Took', 'Tokens in', 'Tokens out', 'Stop heard', 'Stopped below', 'Ending'];

// absentRow is the row of a hop without a record.
function absentRow({ name, call: { at, to, reason, vague }, caller }) {
  return node('tr', {}, node('th', { scope: 'row' }, name), node('td', { 'data-label': columns[1] }, 'no record'), node('td', { 'data-label': columns[2], class: 'number' }, vague ? '–' : duration(to - at)),
    node('td', { colspan: columns.length - 3 }, `${reason ? `${reason}; ` : ''}known from the record of ${caller.name} only`));
}

// tableOf lists the hops, as `whence why` prints them.
export function tableOf(story) {
  const entries = tree(story);
  const named = renamer(entries);
  const rows = entries.flatMap((entry) => {
    const { told: hop } = entry;
    if (!hop) return [absentRow(entry)];
    const cells = [
      node('th', { scope: 'row' }, hop.hop), hop.state, duration(hop.took_ms), hop.tokens_in, hop.tokens_out,
      hop.stop_heard_ms === null ? '–' : `after ${duration(hop.stop_heard_ms)}`,
      hop.stop_confirmed_ms === null ? '–' : `${duration(hop.stop_confirmed_ms)} later`,
      hop.reason ? `${hop.reason}: ${(hop.path ?? []).join(' > ')}` : '–',
    ].map((cell, i) => (i === 0 ? cell : node('td', { 'data-label': columns[i], class: i > 1 && i < 7 ? 'number' : null }, String(cell))));
    const moves = (hop.moves ?? []).map((move) => node('tr', { class: 'move' }, node('td', { colspan: columns.length },
      `moved from ${named(move.from)} to ${named(move.to)} after ${duration(move.at_ms)} and ${count(move.tokens, 'token')}: ${move.reason}`)));
    const handovers = (hop.handovers ?? []).map((over) => node('tr', { class: over.reason === 'completed' ? null : 'move' }, node('td', { colspan: columns.length }, handed(over))));
    return [node('tr', {}, cells), ...handovers, ...moves];
  });
  return node('table', { class: 'hops' }, node('caption', { class: 'unseen' }, 'Records of all hops'),
    node('thead', {}, node('tr', {}, columns.map((name, i) => node('th', { scope: 'col', class: i > 1 && i < 7 ? 'number' : null }, name)))), node('tbody', {}, rows));
}

// eventsOf lists the events of all hops, as `whence why` prints them: all but messages, and between two
// of them the first and the last message that the hop sent.
export function eventsOf(story) {
  const rows = story.hops.flatMap(({ hop, events = [] }) => shortened(events).map((event) => {
    if (event.more) return node('tr', {}, node('td', {}, hop), node('td', { class: 'number' }, '…'), node('td', { colspan: '3' }, `${event.more.toLocaleString('en')} more messages`));
    const { at_ms: at, kind, side, index, tokens, bytes, code, reason, path } = event;
    const what = index === undefined ? [code, reason, path?.join(' > ')].filter(Boolean).join('  ') : `${index}: ${count(tokens, 'token')}, ${bytes} bytes`;
    return node('tr', {}, [hop, duration(at), kind, side, what].map((text, i) => node('td', { class: i === 1 ? 'number' : null }, text)));
  }));
  return node('table', { class: 'events' }, node('thead', {}, node('tr', {}, ['Hop', 'After', 'Event', 'Side', 'What'].map((name, i) => node('th', { scope: 'col', class: i === 1 ? 'number' : null }, name)))),
    node('tbody', {}, rows));
}

function shortened(events) {
  const list = [];
  let sent = [];
  let next = 0; // index of the message after the last one in the list
  const flush = () => {
    for (const event of new Set([sent[0], sent.at(-1)].filter(Boolean))) {
      if (event.index > next) list.push({ more: event.index - next });
      list.push(event);
      next = event.index + 1;
    }
    sent = [];
  };
  for (const event of events) {
    if (event.index === undefined) {
      flush();
      list.push(event);
    } else if (event.kind === 'send') sent.push(event);
  }
  flush();
  return list;
}
