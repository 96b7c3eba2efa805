// #/streams/ID: one stream, running or ended. ?part=ending shows the ending of its picture, and
// ?with=ID compares it with another stream.

import { ended, story, streamPath } from './api.js';
import { comparePage } from './comparepage.js';
import { halter } from './halt.js';
import { chip, delivered, eventsOf, happened, pathOf, sentence, tableOf } from './hops.js';
import { Life } from './life.js';
import { node } from './node.js';
import { paceOf } from './pace.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { recall } from './seen.js';
import { longest } from './tree.js';
import { copy } from './ui.js';
import { joined } from './words.js';

export function streamPage(root, id, query) {
  if (query.get('with')) return comparePage(root, [id, query.get('with')]);
  const life = new Life(recall(id), {
    zoomed: query.get('part') === 'ending',
    onZoom: (on) => history.replaceState(null, '', `#/streams/${encodeURIComponent(id)}${on ? '?part=ending' : ''}`),
  });
  const name = node('button', { type: 'button', class: 'id', title: 'Copy the stream id', 'aria-label': `Copy the stream id ${id}` }, id);
  const problem = new Problem();
  const halt = halter(id, { own: Boolean(recall(id)), fail: (err) => problem.tell(`The stream cannot be stopped: ${err.message}.`) });
  halt.hidden = true;
  const line = node('p', { class: 'told' });
  const path = node('div', {});
  const message = node('p', { class: 'hint' });
  const how = node('div', {});
  const moves = node('div', { class: 'moves', hidden: true });
  const trace = node('p', { class: 'hint', hidden: true });
  const events = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Events of all hops' });
  const gaps = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Gaps between tokens' });
  const table = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Records of all hops' });
  const known = node('div', { hidden: true }, line, moves, path, message, how, life.node, node('h3', {}, 'Gaps between tokens'), gaps, node('h3', {}, 'Hops'), table,
    node('details', {}, node('summary', {}, 'Events'), events), trace, compareForm(id));
  root.append(
    node('div', { class: 'title' }, node('h2', { tabindex: '-1' }, 'Stream'), name, node('span', { class: 'tools' }, halt,
      node('a', { class: 'button', href: streamPath(id) }, 'As JSON'))),
    problem.node, known,
  );
  name.addEventListener('click', () => copy(name, id));
  const ask = async () => {
    try {
      const told = await story(id);
      problem.clear();
      known.hidden = false;
      halt.hidden = told.state !== 'live';
      line.replaceChildren(chip(told.reason, told.state), ` ${joined(sentence(told), told.model)}`);
      path.replaceChildren(...(told.reason ? [pathOf(longest(told))] : []));
      message.textContent = told.message ?? '';
      how.replaceChildren(...[delivered(told)].filter(Boolean));
      const sentences = happened(told);
      moves.hidden = sentences.length === 0;
      moves.replaceChildren(...sentences.map((text) => node('p', {}, text)));
      life.tell(told);
      gaps.replaceChildren(...paceOf(told));
      table.replaceChildren(tableOf(told));
      events.replaceChildren(eventsOf(told));
      const [{ trace: traceID }] = told.hops;
      trace.hidden = !traceID;
      trace.replaceChildren('Trace ', node('code', { class: 'mono' }, traceID ?? ''));
      return told.hops.some(({ state }) => state !== 'ended');
    } catch (err) {
      const text = err.status === 404 ? 'No hop knows this stream: it never existed, or its record was dropped after many later streams.' : `The story cannot be shown: ${err.message}.`;
      if (await problem.tell(text, err)) return ask();
      return err.status !== 404;
    }
  };
  return poll(500, ask);
}

const offered = 25; // ended streams that the form suggests

// compareForm is a form that opens the comparison with another stream.
function compareForm(id) {
  const other = node('input', { name: 'with', list: 'ended', required: true, autocomplete: 'off', placeholder: 'id of another stream' });
  const list = node('datalist', { id: 'ended' });
  const form = node('form', { class: 'filters compare', 'aria-label': 'Compare' }, node('label', {}, node('span', {}, 'Compare with'), other), list, node('button', {}, 'Compare'));
  other.addEventListener('focus', async () => {
    try {
      const streams = await ended({ limit: String(offered) });
      list.replaceChildren(...streams.filter((stream) => stream.id !== id).map((stream) => node('option', { value: stream.id }, `${stream.reason}, ${stream.model ?? 'no model'}`)));
    } catch {
      list.replaceChildren(); // the suggestions are optional
    }
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    location.hash = `#/streams/${encodeURIComponent(id)}?with=${encodeURIComponent(other.value.trim())}`;
  });
  return form;
}
