// Which hop was slow: the gaps between tokens on each hop, over the whole stream.

import { node } from './node.js';
import { duration } from './words.js';

const small = 1; // milliseconds; less is the noise of timers

// slowest returns who added most to the longest gap of a stream, as {who, added, longest}, or null
// if there is no gap. The gap grows from the engine up to the client; each step from the sender to
// the receiver is the network, and each step from the receiver to its own sender is the hop.
export function slowest(story) {
  const paced = story.hops.filter(({ received_pace: received, sent_pace: sent }) => received && sent);
  if (paced.length === 0) return null;
  const longest = paced[0].sent_pace.longest_ms;
  const steps = [];
  paced.forEach((hop, i) => {
    const [received, sent] = [hop.received_pace.longest_ms, hop.sent_pace.longest_ms];
    steps.push({ who: hop.hop, added: sent - received });
    const worker = i >= paced.length - 1 || /worker/.test(hop.hop);
    if (worker) {
      steps.push({ who: `the engine of ${hop.hop}`, added: received });
      return;
    }
    const below = /chat/.test(hop.hop) ? paced.slice(i + 1) : [paced[i + 1]];
    const moved = (hop.moves ?? []).length > 0 ? 'the move from one worker to another, or ' : '';
    steps.push({ who: `${moved}the way from ${below.map(({ hop: name }) => name).join(' or ')} to ${hop.hop}`, added: received - Math.max(...below.map(({ sent_pace: pace }) => pace.longest_ms)) });
  });
  const most = steps.reduce((a, b) => (b.added > a.added ? b : a));
  return longest < small || most.added < small ? null : { ...most, longest };
}

const columns = ['Hop', 'First token in', 'Gap in p50', 'p95', 'longest', 'First token out', 'Gap out p50', 'p95', 'longest'];
const cells = (pace) => ['first_ms', 'p50_ms', 'p95_ms', 'longest_ms'].map((name) => duration(pace?.[name]));

// paceOf lists the gaps of each hop, and names the hop that was slow.
export function paceOf(story) {
  const slow = slowest(story);
  const rows = story.hops.map((hop) => node('tr', {}, node('th', { scope: 'row' }, hop.hop),
    [...cells(hop.received_pace), ...cells(hop.sent_pace)].map((text, i) => node('td', { class: 'number', 'data-label': columns[i + 1] }, text))));
  return [
    node('p', { class: 'hint slowest' }, slow ? `The longest gap between tokens was ${duration(slow.longest)}; ${slow.who} added ${duration(slow.added)} of it.` : 'No gap between tokens was recorded.'),
    node('table', { class: 'pace' }, node('caption', { class: 'unseen' }, 'Gaps between tokens on each hop, over the whole stream'),
      node('thead', {}, node('tr', {}, columns.map((name, i) => node('th', { scope: 'col', class: i > 0 ? 'number' : null }, name)))), node('tbody', {}, rows)),
  ];
}
