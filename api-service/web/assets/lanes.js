// A stream's life as lanes on one time scale: the pure step between the data and the drawing.
//
// Time 0 is the browser's request or, if this browser did not send the request, the time when the
// first hop received it. Each hop reports times of its own clock. They are shifted only if a hop
// would otherwise begin before its caller.

import { longest, renamer, tree } from './tree.js';
import { handed, wall } from './words.js';

// The level of a gap by its ratio to the median of its lane: usual, long, very long, a stall.
const levels = [1.75, 4, 12];

// A gap of less than this many milliseconds is never long: timers are no finer.
const usual = 1;

// lanes returns {lanes, to, ending}: a lane for each hop, the end of the scale, and the part of the
// scale in which the stream ended, as [from, to], or null. A lane is {name, from, to, state, note,
// bands, ticks, marks, left}; left if the stream had left the hop before it ended.
export function lanes(story, seen, now = seen?.at()) {
  const all = [];
  let zero = 0;
  if (seen) {
    all.push(client(seen, now));
    const first = story?.hops[0];
    // Whatever the clocks say, the request reached the first hop after it was sent and before the
    // response header arrived.
    if (first) zero = Math.min(Math.max(wall(first.began) - seen.wall, 0), seen.opened ?? all[0].to);
  }
  const entries = story ? tree(story) : [];
  const origin = story && wall(story.hops[0].began);
  const path = story ? longest(story) : [];
  const named = renamer(entries);
  const starts = new Map(); // of the lanes, by entry
  for (const entry of entries) {
    const above = starts.get(entry.caller) ?? zero;
    if (entry.told) {
      const began = Math.max(above, zero + wall(entry.told.began) - origin);
      starts.set(entry, began);
      all.push({ ...hop(entry.told, began, named), left: path.length > 0 && !path.includes(entry.name) });
    } else {
      starts.set(entry, above + entry.call.at);
      all.push(gone(entry, above));
    }
  }
  return { lanes: all, to: Math.max(1, ...all.map((lane) => lane.to)), ending: endingOf(all) };
}

function client(seen, now) {
  const to = seen.ended ?? now;
  const marks = [{ at: 0, kind: 'send', text: 'sends the request' }];
  if (seen.opened !== null && seen.opened !== seen.resumed[0]) marks.push({ at: seen.opened, kind: 'header', text: 'header' });
  for (const at of seen.resumed) marks.push({ at, kind: 'resumed', text: 'resumes the stream' });
  if (seen.stopped !== null) marks.push({ at: seen.stopped, kind: 'heard', text: 'presses Stop' });
  if (seen.ended !== null) marks.push({ at: to, kind: 'end', text: 'the stream has ended' });
  return {
    name: 'client', from: 0, to, state: seen.ended === null ? 'live' : 'ended', note: `${seen.count} frames`,
    bands: bands(seen.frames.map((at, index) => ({ at, index }))), ticks: seen.frames.map((at) => ({ at, side: 'both' })), marks,
  };
}

const names = { header: 'header', rst: 'RST_STREAM', trailer: 'trailer' };

function hop(told, began, named) {
  const lane = {
    name: told.hop, from: began, to: began + told.took_ms, state: told.state, note: `${told.tokens_in} in, ${told.tokens_out} out`,
    bands: [], ticks: [], marks: [],
  };
  const events = told.events ?? [];
  for (const event of events) {
    const at = began + event.at_ms;
    const [, way, what] = /^(send|recv)(?:_(\w+))?$/.exec(event.kind) ?? [];
    if (!way) continue; // a kind that this page does not know
    if (!what) {
      lane.ticks.push({ at, side: event.side });
    } else if (names[what]) {
      const said = [event.code, event.reason, event.path?.map(named).join(' > ')].filter(Boolean).join(', ');
      lane.marks.push({ at, kind: what, side: event.side, text: `${way === 'send' ? 'sends' : 'gets'} ${names[what]} ${event.side}${said ? `: ${said}` : ''}` });
    }
  }
  lane.bands = bands(flow(events).map(({ at_ms, index }) => ({ at: began + at_ms, index })));
  for (const over of told.handovers ?? []) {
    lane.marks.push({ at: began + over.at_ms, kind: 'handover', text: handed(over) });
  }
  for (const move of told.moves ?? []) {
    lane.marks.push({ at: began + move.at_ms, kind: 'move', text: `moves from ${named(move.from)} to ${named(move.to)}: ${move.reason}` });
  }
  if (told.stop_heard_ms !== null && told.stop_heard_ms !== undefined) {
    const heard = began + told.stop_heard_ms;
    lane.marks.push({ at: heard, kind: 'heard', text: 'receives the stop' });
    if (told.stop_confirmed_ms !== null && told.stop_confirmed_ms !== undefined) {
      lane.marks.push({ at: heard + told.stop_confirmed_ms, kind: 'confirmed', text: 'the hop below has stopped' });
    }
  }
  if (told.state === 'ended') lane.marks.push({ at: lane.to, kind: 'end', text: `ends: ${told.reason}` });
  return lane;
}

// gone is the lane of a hop that has no record, on the clock of its caller, whose record began at
// began.
function gone({ name, call: { at, to, messages, reason, vague } }, began) {
  const times = messages.map((message) => ({ at: began + message.at, index: message.index }));
  return {
    name, from: began + at, to: began + to, state: 'gone', note: vague ? 'no record; its times are not known' : 'no record; as its caller saw it', vague,
    bands: bands(times), ticks: times.map((message) => ({ at: message.at, side: 'up' })),
    marks: reason ? [{ at: began + to, kind: 'rst', side: 'up', text: `is lost to its caller: ${reason}` }] : [],
  };
}

// flow returns the messages that carry the answer: those received from below or, on the last hop,
// those sent up.
function flow(events) {
  const came = events.filter(({ kind, side }) => kind === 'recv' && side === 'down');
  return came.length > 0 ? came : events.filter(({ kind, side }) => kind === 'send' && side === 'up');
}

// bands returns the gaps between messages as {from, to, level}. Only the first and last messages
// are recorded; between messages that are not consecutive, the level is -1.
export function bands(messages) {
  const gaps = [];
  for (let i = 1; i < messages.length; i++) {
    const [before, after] = [messages[i - 1], messages[i]];
    const known = after.index === undefined || before.index === undefined || after.index === before.index + 1;
    gaps.push({ from: before.at, to: after.at, level: known ? 0 : -1 });
  }
  const lengths = gaps.filter(({ level }) => level === 0).map(({ from, to }) => to - from).sort((a, b) => a - b);
  const median = Math.max(usual, lengths[(lengths.length - 1) >> 1] ?? usual);
  for (const gap of gaps) {
    if (gap.level === 0) gap.level = levels.filter((level) => gap.to - gap.from > level * median).length;
  }
  return gaps;
}

// endingOf returns the time span in which the hops got the stop and ended, with a margin, if all of
// them have ended.
function endingOf(all) {
  const ended = all.length > 0 && all.every(({ state, marks }) => state === 'gone' || marks.some(({ kind }) => kind === 'end'));
  if (!ended) return null;
  const times = all.filter(({ left }) => !left).flatMap(({ marks }) => marks.filter(({ kind }) => ['heard', 'confirmed', 'end'].includes(kind)).map(({ at }) => at));
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const air = Math.max(0.2, (to - from) * 0.12);
  return [Math.max(0, from - air), to + air];
}

// threads returns the way of the stop down and of the ending up, each as a list of [lane, time].
export function threads(all) {
  const way = (kind) => all.flatMap(({ marks, left }, lane) => marks.filter((mark) => !left && mark.kind === kind).map(({ at }) => [lane, at]));
  return { down: way('heard'), up: way('end').reverse() };
}

// scale returns the marks of an axis from one time to another, about as many as wanted.
export function scale(from, to, wanted) {
  const rough = (to - from) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough * 0.999);
  const marks = [];
  for (let i = Math.ceil(from / step - 1e-9) || 0; i * step <= to + step * 1e-9; i++) marks.push(i * step);
  return { marks, step };
}
