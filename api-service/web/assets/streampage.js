// #/streams/ID: one stream, running or ended. ?part=ending shows the ending of its picture.

import { stop, story, streamPath } from './api.js';
import { chip, delivered, longest, pathOf, sentence, tableOf } from './hops.js';
import { Life } from './life.js';
import { node } from './node.js';
import { paceOf } from './pace.js';
import { poll } from './poll.js';
import { recall } from './seen.js';
import { copy } from './ui.js';

export function streamPage(root, id, query) {
  const life = new Life(recall(id), {
    zoomed: query.get('part') === 'ending',
    onZoom: (on) => history.replaceState(null, '', `#/streams/${encodeURIComponent(id)}${on ? '?part=ending' : ''}`),
  });
  const name = node('button', { type: 'button', class: 'id', title: 'Copy the stream id', 'aria-label': `Copy the stream id ${id}` }, id);
  const problem = node('p', { class: 'problem', role: 'alert', hidden: true });
  const halt = node('button', { type: 'button', class: 'stop', hidden: true }, 'Stop');
  const line = node('p', { class: 'told' });
  const path = node('div', {});
  const message = node('p', { class: 'hint' });
  const how = node('div', {});
  const gaps = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Gaps between tokens' });
  const table = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Records of all hops' });
  const known = node('div', { hidden: true }, line, path, message, how, life.node, node('h3', {}, 'Gaps between tokens'), gaps, node('h3', {}, 'Hops'), table);
  root.append(
    node('div', { class: 'title' }, node('h2', { tabindex: '-1' }, 'Stream'), name, node('span', { class: 'tools' }, halt,
      node('a', { class: 'button', href: streamPath(id) }, 'As JSON'))),
    problem, known,
  );
  name.addEventListener('click', () => copy(name, id));
  halt.addEventListener('click', async () => {
    halt.disabled = true;
    try {
      await stop(id);
    } catch (err) {
      say(`The stream cannot be stopped: ${err.message}.`);
      halt.disabled = false;
    }
  });
  const say = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  return poll(500, async () => {
    try {
      const told = await story(id);
      say('');
      known.hidden = false;
      halt.hidden = told.state !== 'live';
      line.replaceChildren(chip(told.reason, told.state), ` ${sentence(told)}${told.model ? ` · ${told.model}` : ''}`);
      path.replaceChildren(...(told.reason ? [pathOf(longest(told))] : []));
      message.textContent = told.message ?? '';
      how.replaceChildren(...[delivered(told)].filter(Boolean));
      life.tell(told);
      gaps.replaceChildren(...paceOf(told));
      table.replaceChildren(tableOf(told));
      return told.hops.some(({ state }) => state !== 'ended');
    } catch (err) {
      say(err.status === 404 ? 'No hop knows this stream: it never existed, or its record was dropped after many later streams.' : `The story cannot be shown: ${err.message}.`);
      return err.status !== 404;
    }
  });
}
