// A proxy that cuts the connections of readers: the first `times` responses to GET
// /v1/streams/{id}/events end after `bytes` bytes, at any point of an event; with inLine not at the
// end of a line.

import net from 'node:net';

export async function cutter(target, { times, bytes, inLine }) {
  const { hostname, port } = new URL(target);
  const sockets = new Set();
  const proxy = { cuts: 0, url: '', close: () => undefined };
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port), hostname);
    let left = Infinity;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on('data', (chunk) => {
      if (/^GET \/v1\/streams\/[^ ]*\/events/m.test(chunk) && proxy.cuts < times) left = bytes;
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (client.writableEnded) return; // cut
      let part = chunk.subarray(0, left);
      left -= part.length;
      while (left === 0 && inLine && part.at(-1) === 10) part = part.subarray(0, -1);
      if (left > 0) {
        client.write(part);
      } else {
        proxy.cuts++;
        client.end(part);
      }
    });
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  proxy.close = () => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => { server.close(resolve); });
  };
  return proxy;
}
