// Answers of the server for pages that must look the same in each run.

const pace = (longest) => ({ first_ms: 5, p50_ms: 20, p95_ms: 30, longest_ms: longest });
const hop = (name, received, sent, more = {}) => ({
  hop: name, state: 'ended', reason: 'completed', path: ['engine', 'llm-worker/a', 'chat-service'], began: '2026-01-02T03:04:05Z', took_ms: 900, tokens_in: 9, tokens_out: 9,
  stop_heard_ms: null, stop_confirmed_ms: null, received_pace: pace(received), sent_pace: pace(sent), ...more,
});
export const killed = {
  id: 'killed', state: 'ended', reason: 'completed', origin: 'engine', tokens: { prompt: 3, generated: 9, delivered: 9, wasted: 0 },
  hops: [
    hop('api-service', 400, 401),
    hop('chat-service', 45, 400, {
      moves: [{ from: 'llm-worker/b', to: 'llm-worker/a', reason: 'peer_lost', at_ms: 300, tokens: 4 }],
      events: [
        { at_ms: 1, kind: 'send_header', side: 'down' }, { at_ms: 2, kind: 'recv_header', side: 'down', path: ['llm-worker/b'] },
        { at_ms: 300, kind: 'recv_rst', side: 'down', code: 'LOST', reason: 'peer_lost', path: ['llm-worker/b'] },
      ],
    }),
    hop('llm-worker/a', 40, 41),
  ],
};

const reasons = ['completed', 'user_stop', 'deadline', 'completed', 'peer_lost', 'client_gone'];
const origins = { completed: 'engine', user_stop: 'client', client_gone: 'client', deadline: 'api-service', peer_lost: 'llm-worker/b' };

export const now = Date.UTC(2026, 0, 2, 3, 10, 0);

// streams are two dozen ended streams of the last minutes.
export const streams = Array.from({ length: 24 }, (_, i) => {
  const reason = reasons[i % reasons.length];
  return {
    id: `request-${String(i).padStart(4, '0')}`, state: 'ended', reason, origin: origins[reason], path: [origins[reason], 'api-service'], model: 'whence-tiny',
    tokens: { prompt: 20, generated: 40 + 9 * i, delivered: 40 + 9 * i, wasted: 0 },
    hops: [{ ...hop('api-service', 40 + i, 45 + 3 * i), began: new Date(now - (i + 1) * 11_000).toISOString(), took_ms: 1500 + 100 * i, peer: '192.0.2.1:5000' }],
  };
});

const worker = (name, more) => ({
  name, target: '192.0.2.2:8082', state: 'healthy', model: 'whence-tiny', engine: 'embedded', role: 'both', context_length: 1024, continues: true, streams: 3,
  running: 12, queued: 40, max_running: 64, max_queued: 256, kv_used_tokens: 30_000, kv_total_tokens: 65_536, kv_cached_tokens: 0, ...more,
});

export const workers = [worker('llm-worker/a', {}), worker('llm-worker/b', { state: 'down', message: 'connection refused', running: 0, queued: 0, kv_used_tokens: 0 }), worker('llm-worker/c', { running: 60 })];
