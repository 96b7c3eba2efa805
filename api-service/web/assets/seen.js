// The browser's own measurements of a stream, in milliseconds since the request.

import { Gaps } from './client/gaps.js';

const most = 1 << 15; // number of frames whose times are kept; later frames are only counted
const streams = 32; // number of streams that are kept for their own pages

const remembered = new Map();

export class Seen {
  opened = null; // when the response header arrived
  resumed = []; // when the response header of each later connection arrived
  stopped = null; // when the user pressed Stop
  ended = null;
  frames = []; // when each frame with text arrived
  count = 0;
  headers = null; // of the response
  gaps = new Gaps();
  #asked;

  // asked is when the stream was requested; negative if that was before this page began.
  constructor(id, asked = performance.now()) {
    this.id = id;
    this.#asked = asked;
    this.wall = performance.timeOrigin + asked; // milliseconds since 1970
  }

  // open records that a connection brings the stream. again tells that it is not the first one.
  open(now, headers, again = this.opened !== null) {
    this.opened ??= this.at(now);
    if (again) this.resumed.push(this.at(now));
    this.headers = headers;
    this.gaps = new Gaps(); // the service compares them with those of this connection
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
