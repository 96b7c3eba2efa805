// Which hop was slow: the gaps between tokens on each hop, over the whole stream.

import { node } from './node.js';
import { tree } from './tree.js';
import { duration } from './words.js';

const small = 1; // milliseconds; less is the noise of timers

// slowest returns who added most to the longest gap of a stream, as {who, added, longest}, or null
// if there is no gap. The gap grows from the engine up to the client; each step from the sender to
// the receiver is the network, and each step from the receiver to its own sender is the hop.
export function slowest(story) {
  const paced = tree(story).filter(({ told }) => told?.received_pace && told.sent_pace);
  if (paced.length === 0) return null;
  const longest = paced[0].told.sent_pace.longest_ms;
  const callers = new Map(paced.slice(1).map((entry) => [entry, callerOf(entry, paced)]));
  const steps = [];
  for (const entry of paced) {
    const { told, name } = entry;
    const [received, sent] = [told.received_pace.longest_ms, told.sent_pace.longest_ms];
    steps.push({ who: name, added: sent - received });
    const below = paced.filter((other) => callers.get(other) === entry);
    if (below.length === 0) {
      steps.push({ who: calls(told) ? `a hop below ${name} without a record, or the way from it,` : `the engine of ${name}`, added: received });
      continue;
    }
    const moved = (told.moves ?? []).length > 0 ? 'the move from one hop to another, or ' : '';
    steps.push({
      who: `${moved}the way from ${below.map((other) => other.name).join(' or ')} to ${name}`,
      added: received - Math.max(...below.map((other) => other.told.sent_pace.longest_ms)),
    });
  }
  const most = steps.reduce((a, b) => (b.added > a.added ? b : a));
  return longest < small || most.added < small ? null : { ...most, longest };
}

// calls reports whether a hop has called another hop. Without events, the name has to tell.
function calls(told) {
  return told.events ? told.events.some(({ kind, side }) => kind === 'send_header' && side === 'down') : !/worker/.test(told.hop);
}

// callerOf returns the nearest hop above another one whose gaps are known. Without events, that is
// the hop before it that is no worker.
function callerOf(entry, paced) {
  let { caller } = entry;
  while (caller && !paced.includes(caller)) caller = caller.caller;
  return caller ?? paced.slice(0, paced.indexOf(entry)).findLast(({ told }) => calls(told)) ?? paced[0];
}

const columns = ['Hop', 'First token in', 'Gap in p50', 'p95', 'longest', 'First token out', 'Gap out p50', 'p95', 'longest'];
const cells = (pace) => ['first_ms', 'p50_ms', 'p95_ms', 'longest_ms'].map((name) => duration(pace?.[name]));

// paceOf lists the gaps of each hop, and names the hop that was slow.
export function paceOf(story) {
  const slow = slowest(story);
  const rows = tree(story).filter(({ told }) => told).map(({ told: hop }) => node('tr', {}, node('th', { scope: 'row' }, hop.hop),
    [...cells(hop.received_pace), ...cells(hop.sent_pace)].map((text, i) => node('td', { class: 'number', 'data-label': columns[i + 1] }, text))));
  return [
    node('p', { class: 'hint slowest' }, slow ? `The longest gap between tokens was ${duration(slow.longest)}; ${slow.who} added ${duration(slow.added)} of it.` : 'No gap between tokens was recorded.'),
    node('table', { class: 'pace' }, node('caption', { class: 'unseen' }, 'Gaps between tokens on each hop, over the whole stream'),
      node('thead', {}, node('tr', {}, columns.map((name, i) => node('th', { scope: 'col', class: i > 0 ? 'number' : null }, name)))), node('tbody', {}, rows)),
  ];
}

// pacesOf compares the gaps of two streams, hop by hop. Hops with the same name are in one row, or
// else hops of the same service.
export function pacesOf(a, b) {
  const [before, after] = [a, b].map((story) => tree(story).filter(({ told }) => told));
  const service = ({ name }) => name.split('/')[0];
  const rows = before.map((hop) => [hop, null]);
  for (const key of [({ name }) => name, service]) {
    for (const row of rows) {
      const i = row[1] ? -1 : after.findIndex((other) => key(other) === key(row[0]));
      if (i >= 0) row[1] = after.splice(i, 1)[0];
    }
  }
  rows.push(...after.map((hop) => [null, hop]));
  const names = ['First token A', 'B', 'p50 A', 'B', 'p95 A', 'B', 'Longest A', 'B'];
  const labels = ['First token A', 'First token B', 'p50 A', 'p50 B', 'p95 A', 'p95 B', 'Longest A', 'Longest B'];
  const body = rows.map((pair) => {
    const [of, against] = pair.map((hop) => cells(hop?.told.sent_pace));
    const title = [...new Set(pair.filter(Boolean).map(({ name }) => name))].join(', ');
    return node('tr', {}, node('th', { scope: 'row' }, title), of.flatMap((text, i) => [text, against[i]]).map((text, i) => node('td', { class: 'number', 'data-label': labels[i] }, text)));
  });
  return node('table', { class: 'pace' }, node('caption', { class: 'unseen' }, 'Gaps between tokens on each hop, of both streams'),
    node('thead', {}, node('tr', {}, node('th', { scope: 'col' }, 'Hop'), names.map((name, i) => node('th', { scope: 'col', class: 'number', 'aria-label': labels[i] }, name)))), node('tbody', {}, body));
}
