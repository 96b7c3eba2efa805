// The hops of a stream in the order of their lanes: each hop follows its caller.
//
// A hop may have no record: it died, it restarted, or it left. The record of its caller then
// describes the call. A caller may know a callee only by its address. Then the name comes
// from the callee, or from a hop that the callee called: the first event of a record has the path of
// its call.

import { wall } from './words.js';

// longest returns the path of the ending as the last hop on that path reported it.
export function longest(story) {
  return story.hops.map(({ path }) => path ?? []).reduce((long, path) => (path.length > long.length ? path : long), story.path ?? []);
}

// tree returns the hops of a story in the order of their lanes. An entry is {name, told, caller} for
// a hop with a record and {name, call, caller} for a hop without one. caller is the entry of its
// caller, or null. alias is the address by which the caller knows the hop, if it has no name for it.
export function tree(story) {
  const known = story.hops.map((told) => ({ name: told.hop, told, caller: null, calls: callsOf(told) }));
  const names = new Set(known.map(({ name }) => name));
  const [first] = known;
  const byTime = known.slice(1).sort((a, b) => wall(a.told.began) - wall(b.told.began));
  for (const entry of byTime) matchCaller(entry, known);
  const gone = [];
  for (const caller of known) {
    for (const call of caller.calls) {
      const name = call.own ?? call.name;
      if (names.has(name) || call.taken) continue;
      names.add(name); // another caller may name it, too
      gone.push({ name, call, caller, alias: call.own && call.own !== call.name ? call.name : undefined });
    }
  }
  for (const entry of byTime) matchGone(entry, gone);
  for (const name of story.workers ?? []) { // no hop has a record of such a worker, or of a call to it
    if (names.has(name)) continue;
    gone.push({ name, caller: first, call: { name, at: 0, to: first.told.took_ms, messages: [], reason: '', vague: true } });
  }
  return ordered([...known, ...gone]);
}

// callsOf returns the calls of a hop to the hops below, oldest first. Each is {name, at, to,
// messages, reason}, in milliseconds of the caller's record; reason is empty unless the call failed.
// own is the callee's own name, if its ending has reached the caller.
function callsOf(caller) {
  const calls = new Map();
  let started = 0;
  let open = null; // the call that receives the messages from below
  const callOf = (name) => {
    if (!calls.has(name)) calls.set(name, { name, at: started, to: caller.took_ms, messages: [], reason: '' });
    return calls.get(name);
  };
  for (const { side, kind, at_ms: at, path, reason, index } of caller.events ?? []) {
    if (side !== 'down') continue;
    if (kind === 'send_header') started = at;
    else if (kind === 'recv_header' && path?.length > 0) open = callOf(path.at(-1));
    else if (kind === 'recv') open?.messages.push({ at, index });
    else if (kind === 'recv_rst' || kind === 'recv_trailer') {
      const call = kind === 'recv_rst' && path?.length > 0 ? callOf(path.at(-1)) : open;
      if (call) Object.assign(call, { to: at, reason: reason === 'completed' ? '' : (reason ?? '') });
      if (call && kind === 'recv_trailer' && path?.length > 0 && path.at(-1) !== caller.hop) call.own = path.at(-1);
      open = null;
    }
  }
  let before = 0;
  for (const { from, reason, at_ms: at } of caller.moves ?? []) { // also without events
    if (!calls.has(from)) calls.set(from, { name: from, at: before, to: at, messages: [], reason });
    before = at;
  }
  return [...calls.values()];
}

// via returns the hops that the call of a hop had crossed, outermost first; the last is its caller.
function via(told) {
  return told.events?.find(({ kind, side }) => kind === 'recv_header' && side === 'up')?.path ?? [];
}

// nearest returns the call of a caller that began nearest to a record, by the clocks of both.
function nearest(calls, caller, told) {
  const distance = ({ at }) => Math.abs(wall(caller.began) + at - wall(told.began));
  return calls.reduce((best, call) => (best && distance(best) <= distance(call) ? best : call), null);
}

// matchCaller finds the caller of a hop among the hops with records, and the caller's call.
function matchCaller(entry, known) {
  const name = via(entry.told).at(-1);
  const caller = known.find((other) => other !== entry && other.name === name);
  if (!caller) return;
  entry.caller = caller;
  if (caller.calls.some((call) => call.name === entry.name)) return;
  const others = new Set(known.map((other) => other.name));
  const call = caller.calls.find((one) => one.own === entry.name) ?? nearest(caller.calls.filter((one) => !one.taken && !others.has(one.name)), caller.told, entry.told);
  if (!call) return;
  call.taken = true; // it was a call of this hop, by its address
  entry.alias = call.name;
}

// matchGone finds the caller of a hop among the hops without records, and that caller's name.
function matchGone(entry, gone) {
  const [above, name] = via(entry.told).slice(-2);
  if (entry.caller || !name) return;
  entry.caller = gone.find((other) => other.name === name) ?? null;
  if (entry.caller) return;
  const candidates = gone.filter((other) => other.caller.name === above && !other.alias);
  if (candidates.length === 0) return;
  const call = nearest(candidates.map((other) => other.call), candidates[0].caller.told, entry.told);
  entry.caller = candidates.find((other) => other.call === call);
  Object.assign(entry.caller, { name, alias: call.name });
}

// ordered puts each entry after its caller, and callees in the order of time.
function ordered(all) {
  const began = ({ told, call, caller }) => (told ? wall(told.began) : call.vague ? Infinity : wall(caller.told.began) + call.at);
  const placed = new Set();
  const place = (entry) => {
    if (placed.has(entry)) return;
    placed.add(entry);
    all.filter((other) => other.caller === entry).sort((a, b) => (began(a) > began(b)) - (began(a) < began(b))).forEach(place);
  };
  for (const entry of all) if (!entry.caller || entry === all[0]) place(entry);
  all.forEach(place); // whatever the records say, no hop is left out
  return [...placed];
}

// renamer returns a function that replaces the addresses of hops by their names.
export function renamer(entries) {
  const names = new Map(entries.filter(({ alias }) => alias).map(({ alias, name }) => [alias, name]));
  return (name) => names.get(name) ?? name;
}
