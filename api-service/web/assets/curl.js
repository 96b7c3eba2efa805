// The chat's last request as a command, for each API that can answer it.

// split returns the system messages of a request as one text, and the other messages.
function split(messages) {
  const system = messages.filter(({ role }) => role === 'system').map(({ content }) => content).join('\n\n');
  return { system: system || undefined, rest: messages.filter(({ role }) => role !== 'system') };
}

// apis are the APIs by their names on the page. body converts a chat completion request. lacks are
// the fields that an API does not have.
export const apis = {
  'Chat completions': { path: '/v1/chat/completions', body: (request) => request, lacks: [] },
  Responses: {
    path: '/v1/responses',
    body({ model, messages, stream, temperature, top_p, max_tokens }) {
      const { system, rest } = split(messages);
      return { model, instructions: system, input: rest, stream, store: false, temperature, top_p, max_output_tokens: max_tokens };
    },
    lacks: ['seed', 'stop'],
  },
  Messages: {
    path: '/v1/messages',
    body({ model, messages, stream, temperature, top_p, max_tokens = 400, stop }) {
      const { system, rest } = split(messages);
      return { model, max_tokens, system, messages: rest, stream, temperature, top_p, stop_sequences: stop };
    },
    lacks: ['seed'],
  },
};

// missing returns the fields of a request that an API does not have.
export function missing(request, api) {
  return apis[api].lacks.filter((name) => request[name] !== undefined);
}

// curl returns the command that sends the same request to an API, one field per line. The command
// reads the key from the shell's environment, so that a pasted command contains no key.
export function curl(origin, request, withKey = false, api = 'Chat completions') {
  const { path, body } = apis[api];
  const fields = Object.entries(body(request)).filter(([, value]) => value !== undefined);
  const json = `{\n${fields.map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(',\n')}\n  }`;
  const lines = [`curl -N ${origin}${path}`, "-H 'Content-Type: application/json'"];
  if (withKey) lines.push('-H "Authorization: Bearer $WHENCE_KEY"');
  lines.push(`-d '${json.replaceAll("'", "'\\''")}'`);
  return lines.join(' \\\n  ');
}
