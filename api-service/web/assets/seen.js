// The browser's own measurements of a stream, in milliseconds since the request.

import { Gaps } from './gaps.js';

const most = 1 << 15; // number of frames whose times are kept; later frames are only counted
const streams = 32; // number of streams that are kept for their own pages

const remembered = new Map();

export class Seen {
  opened = null; // when the response header arrived
  stopped = null; // when the user pressed Stop
  ended = null;
  frames = []; // when each frame with text arrived
  count = 0;
  headers = null; // of the response
  gaps = new Gaps();
  #asked;

  constructor(id, now = performance.now()) {
    this.id = id;
    this.#asked = now;
    this.wall = performance.timeOrigin + now; // milliseconds since 1970
  }

  at(now = performance.now()) {
    return now - this.#asked;
  }

  frame(now) {
    this.count++;
    this.gaps.take(now);
    if (this.frames.length < most) this.frames.push(this.at(now));
  }
}

// remember keeps the measurements of the last streams for the lifetime of the page.
export function remember(seen) {
  remembered.set(seen.id, seen);
  if (remembered.size > streams) remembered.delete(remembered.keys().next().value);
}

export function recall(id) {
  return remembered.get(id);
}

// latency summarizes the times of frames: the time to the first frame, and the gaps between frames.
export function latency(frames) {
  if (frames.length === 0) return null;
  const gaps = frames.slice(1).map((at, i) => at - frames[i]);
  const sorted = gaps.toSorted((a, b) => a - b);
  const quantile = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  const took = frames.at(-1) - frames[0];
  return { ttft: frames[0], gaps, p50: quantile(0.5), p95: quantile(0.95), max: sorted.at(-1), rate: took > 0 ? (gaps.length * 1000) / took : undefined };
}
