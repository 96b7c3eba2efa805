// Figures over time as SVG: one line for each series.

import { scale } from './lanes.js';
import { drawn, node } from './node.js';

const box = { height: 130, top: 12, bottom: 104, edge: 8 };

// chart returns a figure of this width. A series is {name, kind, of}: of returns the value of a point,
// or null, where the line goes on to the next value. format formats a value.
export function chart(title, series, { points, from, to }, width, format) {
  const values = series.flatMap(({ of }) => points.map(of)).filter((value) => value !== null);
  const top = Math.max(1e-9, ...values) * 1.1;
  const x = (at) => box.edge + ((at - from) / (to - from)) * (width - 2 * box.edge);
  const y = (value) => box.bottom - (value / top) * (box.bottom - box.top);
  const last = series.map(({ name, of }) => `${name} ${format(points.map(of).findLast((value) => value !== null) ?? null)}`).join(', ');
  const root = drawn('svg', { class: 'chart', viewBox: `0 0 ${width} ${box.height}`, width, height: box.height, role: 'img', 'aria-label': `${title}: ${last}` });
  const marks = values.some((value) => value > 0) ? scale(0, top, 3).marks.filter((mark) => mark <= top) : [0];
  for (const mark of marks) root.append(drawn('path', { class: 'grid', d: `M${box.edge},${y(mark).toFixed(1)}H${width - box.edge}` }));
  for (const { kind, of } of series) {
    const d = line(points, of, x, y);
    if (d) root.append(drawn('path', { class: `line ${kind}`, d }));
  }
  for (const mark of marks) if (mark > 0) root.append(drawn('text', { x: box.edge, y: (y(mark) - 3).toFixed(1) }, format(mark)));
  for (const [at, anchor] of [[from, 'start'], [(from + to) / 2, 'middle'], [to, 'end']]) {
    root.append(drawn('text', { x: x(at).toFixed(1), y: box.height - 8, 'text-anchor': anchor }, new Date(at).toTimeString().slice(0, 8)));
  }
  const legend = series.map(({ name, kind }) => node('span', {}, drawn('svg', { viewBox: '0 0 16 4', width: 16, height: 4, 'aria-hidden': 'true' }, drawn('path', { class: `line ${kind}`, d: 'M0,2H16' })), name));
  return node('figure', { class: 'figure canvas' }, node('figcaption', {}, title), root, node('p', { class: 'legend' }, legend));
}

// line returns the path through the points that have a value. A single point is a short stroke.
function line(points, of, x, y) {
  const there = points.filter((point) => of(point) !== null);
  const d = there.map((point, i) => `${i > 0 ? 'L' : 'M'}${x(point.at).toFixed(1)},${y(of(point)).toFixed(1)}`).join('');
  return there.length === 1 ? `${d}m-2,0h4` : d;
}
