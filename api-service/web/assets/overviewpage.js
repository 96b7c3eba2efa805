// #/overview: the rates, latencies and endings of the last minutes, and the load of the workers.

import { anotherKey, ended, live, mostEnded, workers } from './api.js';
import { chart } from './chart.js';
import { chip } from './hops.js';
import { node, refill } from './node.js';
import { overview } from './overview.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { count, duration } from './words.js';
import { address, meters, moods } from './workerspage.js';

const spans = ['1', '5', '15', '60']; // minutes
const recent = 10_000; // milliseconds that count as now
const often = 3000; // milliseconds between two readings: a full list is half a megabyte

const rate = (value) => (value === null ? '–' : value.toFixed(value < 10 ? 1 : 0));

const charts = [
  ['Streams ended per second', rate, [['streams/s', 'first', 'streams']]],
  ['Tokens delivered per second', rate, [['tokens/s', 'first', 'tokens']]],
  ['Time to the first token', duration, [['p50', 'first', 'ttft50'], ['p95', 'second', 'ttft95']]],
  ['Gaps between tokens', duration, [['p50', 'first', 'gap50'], ['p95', 'second', 'gap95']]],
];

export function overviewPage(root, _, query) {
  const problem = new Problem();
  let denied = null; // the refusal to list workers, until there is another key
  const chosen = spans.includes(query.get('minutes')) ? query.get('minutes') : '5';
  const span = node('select', { name: 'minutes' }, spans.map((minutes) => node('option', { value: minutes, selected: minutes === chosen }, count(Number(minutes), 'minute'))));
  const numbers = node('dl', { class: 'numbers' });
  const reach = node('p', { class: 'hint' });
  const plots = node('div', { class: 'charts' });
  const endings = node('div', {});
  const fleet = node('div', {});
  root.append(
    node('div', { class: 'title' }, node('h2', { tabindex: '-1' }, 'Overview'), node('label', { class: 'tools hint' }, 'Last ', span)), problem.node, numbers, reach, plots,
    node('section', { 'aria-label': 'Endings' }, node('h3', {}, 'Endings'), endings),
    node('section', { 'aria-label': 'Workers' }, node('h3', {}, 'Workers'), fleet),
  );
  const ask = async () => {
    const asked = denied ? { err: denied } : workers().then((all) => ({ all }), (err) => ({ err }));
    try {
      const [over, runs] = await Promise.all([ended({ limit: String(mostEnded) }), live()]);
      const to = Date.now();
      const figures = overview({ ended: over, live: runs, cut: over.length >= mostEnded }, to - Number(span.value) * 60_000, to);
      const now = overview({ ended: over, live: runs, cut: false }, to - recent, to);
      showNumbers(numbers, { ...figures.total, streams: now.total.streams, tokens: now.total.tokens }, runs.length);
      reach.textContent = figures.since ? `Only the last ${mostEnded.toLocaleString('en')} ended streams are counted; they begin at ${new Date(figures.since).toTimeString().slice(0, 8)}.` : '';
      const width = Math.max(220, Math.min(plots.clientWidth, plots.clientWidth >= 700 ? (plots.clientWidth - 24) / 2 : plots.clientWidth));
      plots.replaceChildren(...charts.map(([title, format, series]) => chart(title, series.map(([name, kind, field]) => ({ name, kind, of: (point) => point[field] })), figures, width, format)));
      showEndings(endings, figures.endings);
      problem.clear();
    } catch (err) {
      if (await problem.tell(`The streams cannot be listed: ${err.message}.`, err)) return ask();
    }
    const { all, err } = await asked;
    if (err?.status === 403 && !denied) {
      denied = err;
      anotherKey().then(() => (denied = null));
    }
    refill(fleet, err ? node('p', { class: 'problem' }, `The workers cannot be listed: ${err.message}.`) : node('ul', { class: 'workers' }, all.map(load)));
  };
  span.addEventListener('change', () => {
    history.replaceState(null, '', `#/overview?minutes=${span.value}`);
    ask();
  });
  return poll(often, ask);
}

function showNumbers(place, { streams, tokens, ttft50, ttft95, gap50, gap95 }, running) {
  const shown = [
    ['Live now', String(running)], ['Streams/s now', rate(streams)], ['Tokens/s now', rate(tokens)], ['TTFT p50', duration(ttft50)], ['TTFT p95', duration(ttft95)],
    ['Gap p50', duration(gap50)], ['Gap p95', duration(gap95)],
  ];
  place.replaceChildren(...shown.map(([name, value]) => node('div', {}, node('dt', {}, name), node('dd', {}, value))));
}

function showEndings(place, endings) {
  if (endings.length === 0) {
    place.replaceChildren(node('p', { class: 'hint' }, 'No stream has ended in this time.'));
    return;
  }
  const all = endings.reduce((sum, ending) => sum + ending.count, 0);
  const rows = endings.map(({ reason, origin, count: n }) => {
    const share = node('span', { class: 'meter', 'aria-hidden': 'true' });
    share.style.setProperty('--used', String(n / all));
    return node('tr', {}, node('th', { scope: 'row' }, node('a', { href: `#/streams?reason=${encodeURIComponent(reason)}` }, chip(reason))), node('td', {}, origin || '–'),
      node('td', { class: 'number' }, String(n)), node('td', { class: 'share' }, share));
  });
  refill(place, node('table', { class: 'endings' },
    node('thead', {}, node('tr', {}, ['Reason', 'Origin', 'Streams', 'Share'].map((name, i) => node('th', { scope: 'col', class: i === 2 ? 'number' : null }, name)))), node('tbody', {}, rows)));
}

function load(worker) {
  return node('li', { class: 'card' }, node('h3', {}, node('a', { href: address(worker) }, worker.name || worker.target), node('span', { class: 'chip', 'data-mood': moods[worker.state] ?? 'bad' }, worker.state)),
    worker.message && node('p', { class: 'problem' }, worker.message), meters(worker));
}
