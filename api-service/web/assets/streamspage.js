// #/streams: the running streams, and the last streams that ended.

import { ended, live, mostEnded } from './api.js';
import { chip } from './hops.js';
import { node } from './node.js';
import { poll } from './poll.js';
import { choose, keys, pageOf } from './select.js';
import { duration } from './words.js';

const reasons = [
  'completed', 'client_gone', 'user_stop', 'operator_stop', 'slow_reader', 'deadline', 'draining', 'peer_reset', 'peer_lost', 'overloaded',
  'unavailable', 'invalid', 'not_found', 'unauthenticated', 'forbidden', 'engine_failed', 'internal',
];
const limits = ['25', '100', '500'];
const hops = new Set(['client', 'api-service', 'chat-service', 'engine']); // grows with the names in paths
const workers = new Set(); // grows with the workers of streams

export function streamsPage(root, _, query) {
  const problem = node('p', { class: 'problem', role: 'alert', hidden: true });
  const running = node('div', {});
  const over = node('div', {});
  const reason = select('reason', ['', ...reasons], query.get('reason'));
  const hop = select('hop', ['', ...hops], query.get('hop'));
  const worker = select('worker', ['', ...workers], query.get('worker'));
  const limit = select('limit', limits, query.get('limit') ?? limits[0]);
  const search = node('input', { name: 'search', type: 'search', value: query.get('search') ?? '', placeholder: 'id, model, peer …' });
  const sort = select('sort', Object.keys(keys), query.get('sort') ?? 'began');
  const order = select('order', ['descending', 'ascending'], query.get('order') ?? 'descending');
  let page = Number(query.get('page')) || 1;
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
  // On a phone, only the search is visible at first, so that the list is in view.
  const more = node('button', { type: 'button', class: 'more', 'aria-expanded': 'false' }, 'Filters');
  const filters = node('form', { class: 'filters', 'aria-label': 'Filters' },
    field('Search', search), more, field('Reason', reason), field('Hop in its path', hop), field('Worker', worker), field('Sort by', sort), field('Order', order), field('Per page', limit));
  root.append(
    node('h2', { tabindex: '-1' }, 'Streams'), problem,
    node('section', { 'aria-label': 'Live streams' }, node('h3', {}, 'Live'), running),
    node('section', { 'aria-label': 'Ended streams' }, node('h3', {}, 'Ended'), filters, over, node('div', { class: 'title pager' }, before, after, pages)),
  );
  const ask = async () => {
    try {
      const [runs, ends] = await Promise.all([live({ worker: worker.value }), ended({ reason: reason.value, hop: hop.value, worker: worker.value, limit: String(mostEnded) })]);
      learn(hop, hops, [...ends, ...runs].flatMap(({ path }) => path ?? []));
      learn(worker, workers, [...ends, ...runs].flatMap((stream) => stream.workers ?? []));
      const chosen = { search: search.value, sort: sort.value, descending: order.value === 'descending' };
      show(running, choose(runs, chosen), runs.length > 0 ? 'No running stream matches the search.' : worker.value ? `No stream is running on ${worker.value}.` : 'No stream is running on this instance.');
      const { rows, at, pages: all } = pageOf(choose(ends, chosen), page, Number(limit.value));
      page = at;
      before.disabled = at === 1;
      after.disabled = at === all;
      const text = `Page ${at} of ${all}`;
      if (pages.textContent !== text) pages.textContent = text; // screen readers announce a status when it changes
      show(over, rows, search.value || reason.value || hop.value || worker.value ? 'No recorded stream matches these filters.' : 'No stream has ended yet.');
      problem.hidden = true;
    } catch (err) {
      problem.textContent = `The streams cannot be listed: ${err.message}.`;
      problem.hidden = false;
    }
  };
  more.addEventListener('click', () => more.setAttribute('aria-expanded', String(filters.toggleAttribute('data-open'))));
  filters.addEventListener('submit', (event) => event.preventDefault());
  const remember = () => {
    const chosen = { search: search.value, reason: reason.value, hop: hop.value, worker: worker.value, sort: sort.value, order: order.value, limit: limit.value, page: page > 1 ? String(page) : '' };
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

const head = () => node('thead', {}, node('tr', {}, [['Stream'], ['Began', 'wide'], ['Ending'], ['Origin', 'wide'], ['Model', 'wider'], ['Tokens', 'number'], ['Took', 'number'], ['Peer', 'wide']]
  .map(([name, kind]) => node('th', { scope: 'col', class: kind }, name))));

// show lists streams. Existing rows stay in place, so that they keep focus and selection.
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
    node('td', { class: 'wide', title: hop.began }, new Date(hop.began).toTimeString().slice(0, 8)),
    node('td', {}, chip(stream.reason, stream.state)), node('td', { class: 'wide' }, stream.origin ?? '–'), node('td', { class: 'wider' }, stream.model ?? '–'),
    node('td', { class: 'number' }, String(stream.tokens.delivered)), node('td', { class: 'number' }, duration(hop.took_ms)), node('td', { class: 'wide mono' }, hop.peer ?? '–'),
  ];
  while (row.cells.length > 1) row.lastChild.remove(); // the link stays in place, or it would lose the focus
  row.append(...cells);
  return row;
}
