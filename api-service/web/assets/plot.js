// Latency as SVG: a dot for each gap between two frames, at the time of the second frame and as
// high as the gap is long.

import { scale } from './lanes.js';
import { drawn } from './node.js';
import { duration } from './words.js';

const box = { height: 84, top: 14, bottom: 70, edge: 10 };

// plot returns the frames of a stream up to a time as an SVG of this width. measured is the result
// of latency.
export function plot(frames, measured, to, width) {
  const root = drawn('svg', {
    class: 'plot', viewBox: `0 0 ${width} ${box.height}`, width, height: box.height, role: 'img',
    'aria-label': measured ? `Time to first token ${duration(measured.ttft)}, then a token every ${duration(measured.p50)}` : 'No token yet',
  });
  const x = (at) => box.edge + (at / Math.max(to, 1)) * (width - 2 * box.edge);
  root.append(drawn('path', { class: 'grid', d: `M${box.edge},${box.bottom}H${width - box.edge}` }));
  if (!measured) return root;

  // One stall must not flatten all other gaps, so the scale ends a little above most gaps, unless
  // most gaps are almost zero, because tokens arrive in bursts.
  const most = measured.p95 >= 1 ? 3 * measured.p95 : Infinity;
  const top = Math.max(1, Math.min(measured.max ?? 1, most) * 1.15);
  const y = (gap) => box.bottom - (Math.min(gap, top) / top) * (box.bottom - box.top);
  const mark = scale(0, top, 3).marks.at(-1);
  root.append(drawn('path', { class: 'grid', d: `M${box.edge},${y(mark).toFixed(1)}H${width - box.edge}` }));
  if (measured.ttft !== undefined) root.append(drawn('rect', { class: 'ttft', x: x(0), y: box.bottom - 4, width: Math.max(1, x(measured.ttft) - x(0)).toFixed(1), height: 4 }));
  let dots = '';
  let far = '';
  measured.gaps.forEach((gap, i) => {
    const spot = `M${x(frames[i + 1]).toFixed(1)},${y(gap).toFixed(1)}h0`;
    if (gap > top) far += spot;
    else dots += spot;
  });
  root.append(drawn('path', { class: 'dots', d: dots }), drawn('path', { class: 'dots far', d: far }));
  if (measured.p50 !== undefined) {
    root.append(drawn('path', { class: 'median', d: `M${x(frames[0]).toFixed(1)},${y(measured.p50).toFixed(1)}H${x(frames.at(-1)).toFixed(1)}` }));
  }
  // Last, so that the text is above the dots.
  root.append(drawn('text', { class: 'axis', x: width - box.edge, y: (y(mark) - 3).toFixed(1), 'text-anchor': 'end' }, `${Number(mark.toPrecision(2))} ms`));
  return root;
}
