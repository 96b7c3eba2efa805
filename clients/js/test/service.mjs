// A service with scripted answers, over real connections.

import { createServer } from 'node:http';
import { once } from 'node:events';

// serve answers each request with the next of answers, and repeats the last one. An answer is a
// function of response and request, such as sendEvents, json and abort make.
export async function serve(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    const at = Math.min(requests.length, answers.length - 1);
    requests.push({ method: request.method, url: request.url, headers: request.headers, body, at: performance.now() });
    await answers[at](response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    return new Promise((closed) => server.close(closed));
  });
  return { baseURL: `http://127.0.0.1:${server.address().port}`, requests, server };
}

export const made = { id: 'str-1', events: '/v1/streams/str-1/events', read_token: 'tok', resumable: false };

export const json = (status, body, headers = {}) => (response) => {
  response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
};

export const refusal = (status, reason, more = {}, headers = {}) =>
  json(status, { error: { message: `it is ${reason}`, type: 'x', param: null, code: null, whence: { reason, path: ['chat-service', 'api-service'] }, ...more } }, headers);

export const abort = (response) => response.destroy();

const events = (response) => response.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });

// sendEvents sends text as events and ends the body normally.
export const sendEvents = (text) => (response) => events(response).end(text);

// sendAndAbort sends text as events, then breaks the connection.
export const sendAndAbort = (text) => (response) => {
  events(response).write(text, () => response.destroy());
};

// sendAndWait sends text as events and keeps the connection open.
export const sendAndWait = (text) => (response) => {
  events(response).write(text);
};

export const delta = (seq, text) => `id: e.${seq}\nevent: delta\ndata: ${JSON.stringify({ text })}\n\n`;
export const retry = 'retry: 60\n\n';
export const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
export const end = (seq) => `id: e.${seq}\nevent: usage\ndata: ${JSON.stringify(usage)}\n\n`
  + `id: e.${seq + 1}\nevent: ending\ndata: {"reason":"completed","finish":"stop","path":["llm-worker/0","chat-service","api-service"]}\n\n`;
export const error = (seq, reason) => `id: e.${seq}\nevent: error\ndata: {"error":{"message":"why","type":"x","param":null,"code":null,"whence":{"reason":"${reason}","path":["client","api-service"]}}}\n\n`;
