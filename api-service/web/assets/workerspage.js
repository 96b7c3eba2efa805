// #/workers: the workers, and their load. #/workers/NAME marks one of them.

import { workers } from './api.js';
import { node, refill } from './node.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { count } from './words.js';

export const moods = { healthy: 'good', suspect: 'mild', down: 'bad' };

// address returns the address of a worker on this page. A worker that never answered has no name.
export const address = (worker) => `#/workers/${encodeURIComponent(worker.name || worker.target)}`;

export function workersPage(root, chosen) {
  let found = false;
  const problem = new Problem();
  const cards = node('ul', { class: 'workers' });
  const summary = node('p', { class: 'hint', role: 'status' });
  root.append(node('h2', { tabindex: '-1' }, 'Workers'), summary, problem.node, cards);
  const ask = async () => {
    try {
      const all = await workers();
      const healthy = all.filter(({ state }) => state === 'healthy').length;
      const text = `${healthy} of ${count(all.length, 'worker')} healthy, as of their last reports to chat-service`;
      if (summary.textContent !== text) summary.textContent = text; // screen readers announce a status when it changes
      refill(cards, ...all.map((worker) => card(worker, chosen)));
      const mark = cards.querySelector('[aria-current]');
      if (mark && !found) mark.scrollIntoView({ block: 'center' });
      found ||= Boolean(mark);
      if (chosen && !mark) await problem.tell(`There is no worker ${chosen}.`);
      else problem.clear();
    } catch (err) {
      if (await problem.tell(`The workers cannot be listed: ${err.message}.`, err)) await ask();
    }
  };
  return poll(1000, ask);
}

function card(worker, chosen) {
  const facts = [
    ['Model', worker.model], ['Engine', [worker.engine, worker.upstream].filter(Boolean).join(', ')], ['Context', worker.context_length && `${worker.context_length.toLocaleString('en')} tokens`],
    ['Role', worker.role === 'both' ? '' : worker.role], ['Address', worker.target], ['Streams of this chat-service', String(worker.streams)], ['Takes over streams', worker.state === 'down' ? '' : worker.continues ? 'yes' : 'no'],
  ];
  return node('li', { class: 'card', 'aria-current': [worker.name, worker.target].includes(chosen) && 'true' },
    node('h3', {}, node('a', { href: address(worker) }, worker.name || worker.target), node('span', { class: 'chip', 'data-mood': moods[worker.state] ?? 'bad' }, worker.state)),
    worker.message && node('p', { class: 'problem' }, worker.message),
    meters(worker),
    node('dl', { class: 'facts' }, facts.filter(([, value]) => value).map(([name, value]) => node('div', {}, node('dt', {}, name), node('dd', {}, value)))));
}

// meters show the load of a worker, unless it has none to report: what a worker that is down reported
// before is not its load.
export function meters(worker) {
  if (!worker.name || worker.state === 'down') return [];
  return [
    meter('Running', worker.running, worker.max_running), meter('Queued', worker.queued, worker.max_queued),
    meter('KV cache, tokens', worker.kv_used_tokens, worker.kv_total_tokens),
    worker.kv_cached_tokens > 0 && meter('Prefixes kept, tokens', worker.kv_cached_tokens, worker.kv_total_tokens),
  ].filter(Boolean);
}

// meter shows used and total as a bar. Without a total it shows only a number.
function meter(name, used, all) {
  const bar = node('span', {
    class: 'meter', role: 'meter', 'aria-label': name, 'aria-valuemin': '0', 'aria-valuemax': String(all || used), 'aria-valuenow': String(used), hidden: !all,
  });
  bar.style.setProperty('--used', String(all ? Math.min(1, used / all) : 0));
  return node('p', { class: 'load' }, node('span', {}, name), node('span', { class: 'number' }, `${used.toLocaleString('en')}${all ? ` / ${all.toLocaleString('en')}` : ''}`), bar);
}
