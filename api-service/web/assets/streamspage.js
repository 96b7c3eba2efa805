// #/streams: the running streams, and the last streams that ended. ?state=live or ?state=ended shows
// only these.

import { ended, live, mostEnded } from './api.js';
import { halter } from './halt.js';
import { chip } from './hops.js';
import { node } from './node.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { choose, keys, pageOf } from './select.js';
import { duration } from './words.js';

const reasons = [
  'completed', 'client_gone', 'user_stop', 'operator_stop', 'slow_reader', 'deadline', 'draining', 'peer_reset', 'peer_lost', 'overloaded',
  'unavailable', 'invalid', 'not_found', 'unauthenticated', 'forbidden', 'engine_failed', 'internal',
];
const limits = ['25', '100', '500'];
const states = { '': 'All', live: 'Live', ended: 'Ended' };
const nothing = { '': 'There has been no stream on this instance yet.', live: 'No stream is running on this instance.', ended: 'No stream has ended yet.' };
const hops = new Set(['client', 'api-service', 'chat-service', 'engine']); // grows with the names in paths
const workers = new Set(); // grows with the workers of streams

export function streamsPage(root, _, query) {
  const problem = new Problem();
  const list = node('div', {});
  const reason = select('reason', ['', ...reasons], query.get('reason'));
  const hop = select('hop', ['', ...hops], query.get('hop'));
  const worker = select('worker', ['', ...workers], query.get('worker'));
  const limit = select('limit', limits, query.get('limit') ?? limits[0]);
  const search = node('input', { name: 'search', type: 'search', value: query.get('search') ?? '', placeholder: 'id, model, peer …' });
  const sort = select('sort', Object.keys(keys), query.get('sort') ?? 'began');
  const order = select('order', ['descending', 'ascending'], query.get('order') ?? 'descending');
  let page = Number(query.get('page')) || 1;
  let state = query.get('state') in states ? query.get('state') : '';
  const pages = node('p', { class: 'pages', role: 'status' });
  const turn = (text, by) => {
    const button = node('button', { type: 'button' }, text);
    button.addEventListener('click', () => {
      page += by;
      remember();
    });
    return button;
  };
  const [before, after] = [turn('Previous page', -1), turn('Next page', 1)];
  const tabs = Object.keys(states).map((name) => {
    const button = node('button', { type: 'button', 'aria-pressed': String(name === state) }, states[name]);
    button.addEventListener('click', () => {
      state = name;
      page = 1;
      for (const tab of tabs) tab.setAttribute('aria-pressed', String(tab === button));
      remember();
    });
    return button;
  });
  // On a phone, only the search is visible at first, so that the list is in view.
  const more = node('button', { type: 'button', class: 'more', 'aria-expanded': 'false' }, 'Filters');
  const filters = node('form', { class: 'filters', 'aria-label': 'Filters' },
    field('Search', search), more, field('Reason', reason), field('Hop in its path', hop), field('Worker', worker), field('Sort by', sort), field('Order', order), field('Per page', limit));
  root.append(
    node('div', { class: 'title' }, node('h2', { tabindex: '-1' }, 'Streams'), node('span', { class: 'segments tools', role: 'group', 'aria-label': 'State' }, tabs)),
    problem.node, filters, list, node('div', { class: 'title pager' }, before, after, pages),
  );
  const fail = (err) => problem.tell(`The stream cannot be stopped: ${err.message}.`);
  const ask = async () => {
    try {
      const [runs, ends] = await Promise.all([live({ worker: worker.value }), ended({ reason: reason.value, hop: hop.value, worker: worker.value, limit: String(mostEnded) })]);
      learn(hop, hops, [...ends, ...runs].flatMap(({ path }) => path ?? []));
      learn(worker, workers, [...ends, ...runs].flatMap((stream) => stream.workers ?? []));
      const chosen = { search: search.value, sort: sort.value, descending: order.value === 'descending' };
      const found = { live: choose(reason.value || hop.value ? [] : runs, chosen), ended: choose(ends, chosen) }; // a running stream has no ending
      const counts = { '': found.live.length + found.ended.length, live: found.live.length, ended: found.ended.length };
      tabs.forEach((tab, i) => (tab.textContent = `${Object.values(states)[i]} ${Object.values(counts)[i].toLocaleString('en')}`));
      const { rows, at, pages: all } = pageOf(state ? found[state] : choose([...found.live, ...found.ended], chosen), page, Number(limit.value));
      page = at;
      before.disabled = at === 1;
      after.disabled = at === all;
      const text = `Page ${at} of ${all}`;
      if (pages.textContent !== text) pages.textContent = text; // screen readers announce a status when it changes
      const filtered = search.value || reason.value || hop.value || worker.value;
      show(list, rows, filtered ? 'No stream matches these filters.' : nothing[state], fail);
      problem.clear();
    } catch (err) {
      if (await problem.tell(`The streams cannot be listed: ${err.message}.`, err)) await ask();
    }
  };
  more.addEventListener('click', () => more.setAttribute('aria-expanded', String(filters.toggleAttribute('data-open'))));
  filters.addEventListener('submit', (event) => event.preventDefault());
  const remember = () => {
    const chosen = { state, search: search.value, reason: reason.value, hop: hop.value, worker: worker.value, sort: sort.value, order: order.value, limit: limit.value, page: page > 1 ? String(page) : '' };
    history.replaceState(null, '', `#/streams?${new URLSearchParams(Object.entries(chosen).filter(([, value]) => value))}`);
    ask();
  };
  filters.addEventListener('input', () => {
    page = 1;
    remember();
  });
  return poll(2000, ask); // a full list is half a megabyte
}

function field(text, control) {
  return node('label', {}, node('span', {}, text), control);
}

function select(name, values, chosen) {
  if (chosen && !values.includes(chosen)) values = [...values, chosen]; // a link may name a value that this page does not know
  return node('select', { name }, values.map((value) => node('option', { value, selected: value === chosen }, value || 'any')));
}

// learn adds names to the choices of a control; known are the names that it has.
function learn(control, known, names) {
  for (const name of names) {
    known.add(name);
    if (![...control.options].some(({ value }) => value === name)) control.append(node('option', { value: name }, name));
  }
}

// The columns, with the classes of their cells.
const columns = [
  ['Stream', 'name'], ['Began', 'wide time'], ['Ending', 'end'], ['Origin', 'wide'], ['Worker', 'wide'], ['Model', 'wider'], ['Tokens', 'number tokens'], ['Took', 'number took'],
  ['Peer', 'wider mono'], ['Stop', 'wide act'],
];

const head = () => node('thead', {}, node('tr', {}, columns.map(([name, kind]) => node('th', { scope: 'col', class: kind }, name === 'Stop' ? node('span', { class: 'unseen' }, name) : name))));

// show lists streams. Existing rows stay in place, so that they keep focus and selection.
function show(place, streams, none, fail) {
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
  const rows = streams.map((stream) => update(known.get(stream.id), stream, fail));
  if (rows.length !== body.rows.length || rows.some((row, i) => row !== body.rows[i])) {
    const focused = document.activeElement;
    body.replaceChildren(...rows);
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }
}

function update(row, stream, fail) {
  const [hop] = stream.hops;
  row ??= node('tr', { 'data-id': stream.id }, node('td', { class: 'name' }, node('a', { href: `#/streams/${encodeURIComponent(stream.id)}` }, stream.id)),
    node('td', { class: 'wide act' }, halter(stream.id, { own: false, fail })));
  const workers = (stream.workers ?? []).join(' → ');
  const cells = [
    [new Date(hop.began).toTimeString().slice(0, 8), hop.began], [chip(stream.reason, stream.state)], [stream.origin ?? ''], [workers, workers], [stream.model ?? ''],
    [String(stream.tokens.delivered)], [duration(hop.took_ms)], [hop.peer ?? '', hop.peer],
  ].map(([content, title], i) => node('td', { class: columns[i + 1][1], title }, content));
  // The link and the button stay in place, or they would lose the focus.
  while (row.cells.length > 2) row.cells[1].remove();
  row.cells[0].after(...cells);
  row.querySelector('.act button').hidden = stream.state !== 'live';
  return row;
}
