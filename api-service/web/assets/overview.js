// The figures of the overview, from the lists of streams: the pure step between the data and the
// drawing.

import { wall } from './words.js';

export const slots = 60; // points of each plot

// overview returns the figures of the streams between two times, in milliseconds since 1970, as
// {from, to, step, since, points, endings, total}. A point has the streams that ended and the tokens
// that were delivered in its slot, per second, and percentiles of the time to the first token and of
// the gaps between tokens, or null without such streams. since is where the list of ended streams
// begins if the list was cut, or null.
export function overview({ ended, live, cut }, from, to) {
  const step = (to - from) / slots;
  const slotOf = (time) => Math.floor((time - from) / step);
  const points = Array.from({ length: slots }, (_, i) => ({ at: from + (i + 1) * step, streams: 0, tokens: 0, firsts: [], p50s: [], p95s: [] }));
  const total = { streams: 0, tokens: 0, firsts: [], p50s: [], p95s: [] };
  const endings = new Map();
  for (const stream of [...ended, ...live]) {
    const [hop] = stream.hops;
    const began = wall(hop.began);
    const end = began + hop.took_ms;
    const first = began + (hop.sent_pace?.first_ms ?? 0);
    const delivered = spread(points, slotOf(first), slotOf(end), stream.tokens.delivered);
    total.tokens += delivered;
    const samples = (into, time) => {
      if (hop.sent_pace && time >= from && time <= to) into.firsts.push(hop.sent_pace.first_ms);
      if (hop.sent_pace?.longest_ms > 0 && end >= from) {
        into.p50s.push(hop.sent_pace.p50_ms);
        into.p95s.push(hop.sent_pace.p95_ms);
      }
    };
    samples(total, first);
    if (points[slotOf(end)]) samples(points[slotOf(end)], end);
    if (stream.state === 'live' || end < from || end > to) continue;
    total.streams++;
    points[Math.min(slots - 1, slotOf(end))].streams++;
    const key = `${stream.reason}\n${stream.origin ?? ''}`;
    endings.set(key, { reason: stream.reason, origin: stream.origin ?? '', count: (endings.get(key)?.count ?? 0) + 1 });
  }
  const oldest = cut ? Math.min(...ended.map(({ hops: [hop] }) => wall(hop.began) + hop.took_ms)) : -Infinity;
  return {
    from, to, step, since: oldest > from ? oldest : null,
    points: points.map((point) => summary(point, step)), total: summary(total, to - Math.max(from, oldest)),
    endings: [...endings.values()].sort((a, b) => b.count - a.count || a.reason.localeCompare(b.reason)),
  };
}

// spread adds the tokens of a stream evenly to the points of the slots in which the stream sent
// them, and returns how many of them these points have.
function spread(points, first, last, tokens) {
  const each = tokens / (last - first + 1);
  let inside = 0;
  for (let i = Math.max(0, first); i <= Math.min(last, points.length - 1); i++) {
    points[i].tokens += each;
    inside += each;
  }
  return inside;
}

function summary({ at, streams, tokens, firsts, p50s, p95s }, ms) {
  const seconds = Math.max(ms, 1) / 1000;
  return {
    at, streams: streams / seconds, tokens: tokens / seconds,
    ttft50: quantile(firsts, 0.5), ttft95: quantile(firsts, 0.95), gap50: quantile(p50s, 0.5), gap95: quantile(p95s, 0.95),
  };
}

// quantile returns a quantile of numbers, or null if there are none.
export function quantile(numbers, q) {
  if (numbers.length === 0) return null;
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}
