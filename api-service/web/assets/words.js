// Numbers and names for display.

// duration formats milliseconds with only the significant digits.
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '–';
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9950 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
}

// count formats a number of things.
export function count(n, what) {
  return `${n === 0 ? 'no' : n} ${what}${n === 1 ? '' : 's'}`;
}

// joined joins the parts of a line that are there.
export function joined(...parts) {
  return parts.filter(Boolean).join(' · ');
}

// mood classifies a reason for display: a complete answer, an answer that a client or an operator
// stopped, or a failure.
export function mood(reason, state = 'ended') {
  if (state === 'live') return 'live';
  if (reason === 'completed') return 'good';
  return ['user_stop', 'operator_stop', 'client_gone'].includes(reason) ? 'mild' : 'bad';
}

// wall parses an RFC 3339 time to milliseconds since 1970, with the digits after the milliseconds
// that Date drops.
export function wall(text) {
  const finer = /\.\d{3}(\d+)/.exec(text);
  return Date.parse(text) + (finer ? Number(`0.${finer[1]}`) : 0);
}

// handed describes a handover: which worker read the prompt for which other worker. An abandoned one has no other worker.
export function handed({ from, to, reason, took_ms }) {
  if (reason === 'completed') return `prompt read by ${from} for ${to} in ${duration(took_ms)}`;
  if (!to) return `prompt read by ${from} in ${duration(took_ms)}, handover abandoned (${reason})`;
  return from ? `prompt read by ${to} itself: ${from} failed after ${duration(took_ms)} (${reason})` : `prompt read by ${to} itself: no other worker was available (${reason})`;
}

const extents = {
  nothing: 'the client left before the first token',
  part: 'the client left with a part of the answer',
  tool_call: 'the client left with a whole tool call',
  answer: 'the client left with the whole answer, without its terminator',
};

// left describes how much of the answer a client had when it left.
export const left = (extent) => extents[extent] ?? `the client left with: ${extent}`;
