// Lanes as SVG. Shapes have the same meaning as colours, each mark has a title, and the table of
// hops has the same data as text.

import { scale, threads } from './lanes.js';
import { drawn } from './node.js';
import { duration } from './words.js';

const lane = { height: 50, label: 12, middle: 29, half: 9 };
const axis = 26;
const edge = 10; // left and right of the scale

// Shapes of marks, around 0, 0.
const shapes = {
  send: 'M-3,-4L4,0L-3,4Z',
  header: 'M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0',
  rst: 'M-4,-4L4,4M4,-4L-4,4',
  trailer: 'M0,-5L5,0L0,5L-5,0Z',
  heard: 'M-4.5,-9L4.5,-9L0,-1Z',
  confirmed: 'M-4.5,9L4.5,9L0,1Z',
  handover: 'M-6,-2L1,-2L1,-6L6,0L1,6L1,2L-6,2Z',
  move: 'M-4,0L0,-6L0,-2L5,-2L5,2L0,2L0,6Z',
  resumed: 'M-6,-5L0,0L-6,5ZM0,-5L6,0L0,5Z',
  end: 'M0,-11V11',
  long: 'M-9,0H9',
  stall: 'M-9,0H9',
  unknown: 'M-9,0H9',
};

// The meanings of the shapes, in the order of the legend.
export const legend = [
  ['send', 'request'], ['header', 'header'], ['rst', 'RST'], ['trailer', 'trailer'], ['heard', 'stop heard'],
  ['confirmed', 'stopped below'], ['handover', 'prompt handed over'], ['move', 'moved'], ['resumed', 'resumed'], ['end', 'ended'], ['long', 'long gap'], ['stall', 'stall'], ['unknown', 'not recorded'],
];

// kinds returns the kinds of marks in the picture, for the legend.
export function kinds(picture) {
  return new Set(picture.lanes.flatMap(({ marks, bands }) => [
    ...marks.map(({ kind }) => kind), ...bands.map(({ level }) => (level > 2 ? 'stall' : level > 0 ? 'long' : level < 0 ? 'unknown' : '')),
  ]));
}

// symbol draws a single shape.
export function symbol(kind) {
  return drawn('svg', { class: 'symbol', viewBox: '-12 -12 24 24', width: 16, height: 16, 'aria-hidden': 'true' },
    drawn('path', { class: `mark ${kind}`, d: shapes[kind], transform: `translate(0 ${{ heard: 5, confirmed: -5 }[kind] ?? 0})` }));
}

// draw returns the lanes between two times as an SVG of this width.
export function draw(picture, [from, to], width, label) {
  const x = (at) => edge + ((at - from) / (to - from)) * (width - 2 * edge);
  const inside = (at) => at >= from && at <= to;
  const clamped = (at) => x(Math.min(Math.max(at, from), to));
  const top = (i) => i * lane.height;
  const height = picture.lanes.length * lane.height + axis;
  const root = drawn('svg', { class: 'lanes', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label });

  const { marks, step } = scale(from, to, width / 100);
  for (const at of marks) {
    root.append(drawn('path', { class: 'grid', d: `M${x(at).toFixed(1)},0V${height - axis + 6}` }));
    const text = tick(at, step, to);
    const room = 3.5 * text.length; // half the width of the text
    const middle = Math.min(Math.max(x(at), room), width - room);
    root.append(drawn('text', { class: 'axis', x: middle.toFixed(1), y: height - 4, 'text-anchor': 'middle' }, text));
  }
  const { down, up } = threads(picture.lanes);
  for (const [kind, points] of [['down', down], ['up', up]]) {
    const line = points.map(([i, at]) => `${clamped(at).toFixed(1)},${top(i) + lane.middle}`);
    if (line.length > 1) root.append(drawn('path', { class: `thread ${kind}`, d: `M${line.join('L')}` }));
  }
  picture.lanes.forEach((one, i) => {
    const y = top(i) + lane.middle;
    const group = drawn('g', {});
    const left = clamped(one.from);
    group.append(
      drawn('text', { class: 'hop', x: edge, y: top(i) + lane.label }, one.name),
      drawn('text', { class: 'note', x: width - edge - 8, y: top(i) + lane.label, 'text-anchor': 'end' }, one.vague ? one.note : `${one.note} · ${duration(one.to - one.from)}`),
      drawn('rect', {
        class: `life ${one.state}`, x: left.toFixed(1), y: y - lane.half, rx: 3, height: 2 * lane.half,
        width: Math.max(1, clamped(one.to) - left).toFixed(1),
      }),
    );
    for (let level = -1; level <= 3; level++) {
      const d = one.bands.filter((band) => band.level === level && band.to >= from && band.from <= to)
        .map((band) => `M${clamped(band.from).toFixed(1)},${y}H${clamped(band.to).toFixed(1)}`);
      if (d.length > 0) group.append(drawn('path', { class: `gap level${level < 0 ? '-unknown' : level}`, d: d.join('') }));
    }
    group.append(drawn('path', { class: 'ticks', d: ticks(one.ticks.filter(({ at }) => inside(at)), x, y) }));
    for (const mark of one.marks.filter(({ at }) => inside(at))) {
      const by = mark.side === 'up' ? -lane.half : mark.side === 'down' ? lane.half : 0;
      group.append(drawn('path', { class: `mark ${mark.kind}`, d: shapes[mark.kind], transform: `translate(${x(mark.at).toFixed(1)} ${y + by})` },
        drawn('title', {}, `${one.name} ${mark.text}, at ${duration(mark.at)}`)));
    }
    root.append(group);
  });
  return root;
}

// ticks draws a stroke for each message, on the side where the message came from or went to, and a
// single stroke for messages on the same spot.
function ticks(messages, x, y) {
  const drawnAt = { up: -1, down: -1, both: -1 };
  let d = '';
  for (const { at, side } of messages) {
    const spot = Math.round(x(at) * 2) / 2;
    const key = side in drawnAt ? side : 'both';
    if (drawnAt[key] === spot) continue;
    drawnAt[key] = spot;
    d += `M${spot},${y + (key === 'down' ? 1 : -lane.half + 1)}V${y + (key === 'up' ? -1 : lane.half - 1)}`;
  }
  return d;
}

// tick formats a time on the axis, with the digits that the step needs.
function tick(at, step, to) {
  const [value, unit, size] = step >= 100 && to >= 1000 ? [at / 1000, 's', step / 1000] : [at, 'ms', step];
  const digits = Math.max(0, Math.ceil(-Math.log10(size) - 1e-9));
  return `${value.toFixed(digits)} ${unit}`;
}
