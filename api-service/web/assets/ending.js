// Endings: every answer has exactly one, and the page says which. An ending is {kind, ...}:
//
//   completed    finish, tokens, ttft, rate   finish_reason and [DONE] both arrived
//   stopped      as failed, or nothing        the user of the page stopped it
//   failed       code, message, param, path   the stream ended with an error; code is the reason
//   refused      status, retryAfter, ...      the answer never began; with the fields of failed
//   cut          message                      the stream is gone, and its ending is not known
//   lost         message                      the stream may still run, but api-service does not answer
//   unreachable                               no response at all
//
// An ending has resumed, the number of times that the stream was resumed before it.

// failure reads OpenAI's error object, with the reason and the path that Whence adds.
export function failure(error) {
  const { message, code, type, param, whence } = typeof error === 'string' ? { message: error } : error;
  return {
    kind: 'failed',
    code: String(whence?.reason ?? code ?? type ?? 'error'),
    message: String(message ?? ''),
    param: param ?? '',
    path: Array.isArray(whence?.path) ? whence.path.join(' > ') : '',
  };
}

// refusal reads a response that is not a stream.
export function refusal(status, retryAfter, body) {
  let ending = { code: '', message: body.trim().slice(0, 300), param: '', path: '' };
  try {
    const { error } = JSON.parse(body);
    if (error) ending = failure(error);
  } catch {
    // Not Whence's error: perhaps a proxy's page. Show its text.
  }
  return { ...ending, kind: 'refused', status, retryAfter: retryAfter ?? '' };
}

// describe formats an ending as one line of text.
export function describe(ending) {
  switch (ending.kind) {
    case 'completed':
      return [
        'completed',
        ending.finish,
        ending.tokens !== undefined && `${ending.tokens} ${ending.tokens === 1 ? 'token' : 'tokens'}`,
        ending.ttft !== undefined && `TTFT ${Math.round(ending.ttft)} ms`,
        ending.rate !== undefined && `${ending.rate.toFixed(ending.rate < 10 ? 1 : 0)} tok/s`,
        ending.resumed > 0 && `resumed ${ending.resumed === 1 ? 'once' : `${ending.resumed} times`}`,
      ].filter(Boolean).join(' · ');
    case 'stopped':
      return 'stopped by you';
    case 'failed':
      return parts(`ended: ${ending.code}`, ending);
    case 'refused':
      return parts(`refused: ${[ending.status, ending.code].filter(Boolean).join(' ')}`, ending);
    case 'cut':
      return `cut off — ${ending.message}`;
    case 'lost':
      return `not read to its end — ${ending.message}`;
    default:
      return 'no answer — the server could not be reached';
  }
}

function parts(head, { message, param, path, retryAfter }) {
  return [
    head,
    message,
    param && `field: ${param}`,
    path && `path: ${path}`,
    retryAfter && `retry after: ${retryAfter}${/^\d+$/.test(retryAfter) ? ' s' : ''}`,
  ].filter(Boolean).join(' — ');
}
