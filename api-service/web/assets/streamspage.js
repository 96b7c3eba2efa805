// #/streams: those that run, and the last that ended.

import { ended, live } from './api.js';
import { chip } from './hops.js';
import { node } from './node.js';
import { poll } from './poll.js';
import { duration } from './words.js';

const reasons = [
  'completed', 'client_gone', 'user_stop', 'operator_stop', 'slow_reader', 'deadline', 'draining', 'peer_reset', 'peer_lost', 'overloaded',
  'unavailable', 'invalid', 'not_found', 'unauthenticated', 'forbidden', 'engine_failed', 'internal',
];
const limits = ['25', '100', '500'];
const hops = new Set(['client', 'api-service', 'chat-service', 'engine']); // grows with what paths name

export function streamsPage(root, _, query) {
  const problem = node('p', { class: 'problem', role: 'alert', hidden: true });
  const running = node('div', {});
  const over = node('div', {});
  const reason = select('reason', ['', ...reasons], query.get('reason'));
  const hop = select('hop', ['', ...hops], query.get('hop'));
  const limit = select('limit', limits, query.get('limit') ?? limits[0]);
  const filters = node('form', { class: 'filters', 'aria-label': 'Filters' },
    field('Reason', reason), field('Hop in its path', hop), field('At most', limit));
  root.append(
    node('h2', { tabindex: '-1' }, 'Streams'), problem,
    node('section', { 'aria-label': 'Live streams' }, node('h3', {}, 'Live'), running),
    node('section', { 'aria-label': 'Ended streams' }, node('h3', {}, 'Ended'), filters, over),
  );
  const ask = async () => {
    try {
      const [runs, ends] = await Promise.all([live(), ended({ reason: reason.value, hop: hop.value, limit: limit.value })]);
      learn(hop, [...ends, ...runs]);
      show(running, runs.toReversed(), 'Nothing runs on this instance.');
      show(over, ends, reason.value || hop.value ? 'No stream that is remembered ended so.' : 'No stream has ended yet.');
      problem.hidden = true;
    } catch (err) {
      problem.textContent = `The streams cannot be listed: ${err.message}.`;
      problem.hidden = false;
    }
  };
  filters.addEventListener('submit', (event) => event.preventDefault());
  filters.addEventListener('change', () => {
    const chosen = new URLSearchParams(Object.entries({ reason: reason.value, hop: hop.value, limit: limit.value }).filter(([, value]) => value));
    history.replaceState(null, '', `#/streams?${chosen}`);
    ask();
  });
  return poll(1000, ask);
}

function field(text, control) {
  return node('label', {}, node('span', {}, text), control);
}

function select(name, values, chosen) {
  if (chosen && !values.includes(chosen)) values = [...values, chosen]; // a link may know more than this page
  return node('select', { name }, values.map((value) => node('option', { value, selected: value === chosen }, value || 'any')));
}

// learn offers hops that paths have named.
function learn(control, streams) {
  for (const name of streams.flatMap(({ path }) => path ?? [])) {
    if (hops.has(name)) continue;
    hops.add(name);
    if (![...control.options].some(({ value }) => value === name)) control.append(node('option', { value: name }, name));
  }
}

const head = () => node('thead', {}, node('tr', {}, [['Stream'], ['Ending'], ['Origin', 'wide'], ['Model', 'wider'], ['Tokens', 'number'], ['Took', 'number'], ['Peer', 'wide']]
  .map(([name, kind]) => node('th', { scope: 'col', class: kind }, name))));

// show lists streams. Rows that are there already stay, so that focus and selection do.
function show(place, streams, none) {
  if (streams.length === 0) {
    place.replaceChildren(node('p', { class: 'hint' }, none));
    return;
  }
  let body = place.querySelector('tbody');
  if (!body) {
    body = node('tbody', {});
    place.replaceChildren(node('table', { class: 'streams' }, head(), body));
  }
  const known = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const rows = streams.map((stream) => update(known.get(stream.id), stream));
  if (rows.length !== body.rows.length || rows.some((row, i) => row !== body.rows[i])) {
    const focused = document.activeElement;
    body.replaceChildren(...rows);
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }
}

function update(row, stream) {
  const [hop] = stream.hops;
  row ??= node('tr', { 'data-id': stream.id }, node('td', { class: 'name' }, node('a', { href: `#/streams/${encodeURIComponent(stream.id)}` }, stream.id)));
  const cells = [
    node('td', {}, chip(stream.reason, stream.state)), node('td', { class: 'wide' }, stream.origin ?? '–'), node('td', { class: 'wider' }, stream.model ?? '–'),
    node('td', { class: 'number' }, String(stream.tokens.delivered)), node('td', { class: 'number' }, duration(hop.took_ms)), node('td', { class: 'wide mono' }, hop.peer ?? '–'),
  ];
  while (row.cells.length > 1) row.lastChild.remove(); // the link stays where it is, or it would lose the focus
  row.append(...cells);
  return row;
}
