// #/streams/A?with=B: two streams side by side. Both timelines begin with the stream and have one
// scale.

import { story } from './api.js';
import { chip, pathOf, sentence } from './hops.js';
import { lanes } from './lanes.js';
import { Life } from './life.js';
import { node } from './node.js';
import { pacesOf } from './pace.js';
import { poll } from './poll.js';
import { Problem } from './problem.js';
import { longest } from './tree.js';
import { joined } from './words.js';

export function comparePage(root, ids) {
  const sides = ids.map((id, i) => {
    const side = {
      id, letter: 'AB'[i], told: null, life: new Life(null),
      line: node('p', { class: 'told' }), path: node('div', {}), problem: new Problem(),
    };
    side.node = node('section', { 'aria-label': `Stream ${side.letter}` },
      node('h3', {}, `${side.letter}: `, node('a', { class: 'mono', href: `#/streams/${encodeURIComponent(id)}` }, id)), side.problem.node, side.line, side.path, side.life.node);
    return side;
  });
  const table = node('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Gaps between tokens of both streams' });
  root.append(
    node('div', { class: 'title' }, node('h2', { tabindex: '-1' }, 'Compare two streams')),
    node('div', { class: 'sides' }, sides.map((side) => side.node)), node('h3', {}, 'Gaps between sent tokens'), table,
  );
  return poll(500, async () => {
    const running = await Promise.all(sides.map(async (side) => {
      try {
        side.told = await story(side.id);
        side.problem.clear();
        return side.told.hops.some(({ state }) => state !== 'ended');
      } catch (err) {
        await side.problem.tell(err.status === 404 ? 'No hop knows this stream.' : `The story cannot be shown: ${err.message}.`, err);
        return err.status !== 404;
      }
    }));
    const known = sides.filter(({ told }) => told);
    const to = Math.max(0, ...known.map(({ told }) => lanes(told).to));
    for (const { told, line, path, life } of known) {
      line.replaceChildren(chip(told.reason, told.state), ` ${joined(sentence(told), told.model)}`);
      path.replaceChildren(...(told.reason ? [pathOf(longest(told))] : []));
      life.tell(told, to);
    }
    if (known.length === 2) table.replaceChildren(pacesOf(...known.map(({ told }) => told)));
    return running.some(Boolean);
  });
}
