// Hops that took part in a stream and have no record: they died, they restarted, or they left. What
// is known about such a hop comes from the record of its caller.

// absent returns the hops without a record that a hop called, oldest call first. Each is {name, at,
// to, messages, reason}, in milliseconds of the caller's record; reason is empty unless the call
// failed.
export function absent(caller, known) {
  const calls = new Map();
  let started = 0;
  let open = null; // the call that receives the messages from below
  const callOf = (name) => {
    if (known.has(name)) return null;
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
      open = null;
    }
  }
  let before = 0;
  for (const { from, reason, at_ms: at } of caller.moves ?? []) { // also without events
    if (!known.has(from) && !calls.has(from)) calls.set(from, { name: from, at: before, to: at, messages: [], reason });
    before = at;
  }
  return [...calls.values()];
}

// withAbsent returns the hops of a story in the order of their lanes: a hop without a record, as
// {caller, call}, follows its caller, which is the first hop that names it.
export function withAbsent(story) {
  const known = new Set(story.hops.map(({ hop }) => hop));
  return story.hops.flatMap((caller) => {
    const calls = absent(caller, known);
    for (const { name } of calls) known.add(name);
    return [{ told: caller }, ...calls.map((call) => ({ caller, call }))];
  });
}
