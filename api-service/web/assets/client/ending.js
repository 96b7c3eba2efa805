// Endings: who ended a stream, why, and along which path; and the error that carries an ending.

// A WhenceError is the ending of a stream that did not complete, or a refusal to make or read a
// stream.
export class WhenceError extends Error {
  constructor(ending, { status, retryAfter, cause } = {}) {
    const path = ending.path.length > 0 ? ` [${ending.path.join(' > ')}]` : '';
    super(`${ending.reason.replaceAll('_', ' ')}: ${ending.message}${path}`, { cause });
    this.name = 'WhenceError';
    this.ending = ending;
    this.reason = ending.reason;
    this.status = status; // HTTP status of a refusal
    this.retryAfter = retryAfter; // in ms, if the service sent one
    this.gaveUp = false; // true if this is the last failure of a client whose patience was over: the stream may still run
  }
}

export function failed(reason, message, path = [], param = null, code = null) {
  return { reason, origin: path[0] ?? '', path, message, param, code, finish: null, usage: null };
}

// lost returns the ending of a reader that could not reconnect.
export const lost = (message) => failed('peer_lost', message, ['api-service']);

// foreign returns the error for a response that is not Whence's; another attempt would get the same
// response. It returns errors of other kinds unchanged.
export function foreign(err) {
  const ours = !(err instanceof SyntaxError || err instanceof RangeError);
  return ours ? err : new WhenceError(failed('internal', `the answer is not what Whence says: ${err.message}`, ['api-service']), { cause: err });
}

export function completed({ reason, finish, path }, usage) {
  if (typeof reason !== 'string' || !strings(path)) throw new SyntaxError('an ending has a reason and a path');
  return { reason, origin: path[0] ?? '', path, message: '', param: null, code: null, finish: finish ?? null, usage };
}

// errorObject reads {"error": {message, param, code, whence: {reason, path}}}; it returns undefined
// for anything else.
export function errorObject(body) {
  const { message, param, code, whence } = body?.error ?? {};
  if (typeof message !== 'string' || typeof whence?.reason !== 'string') return undefined;
  return failed(whence.reason, message, strings(whence.path) ? whence.path : [], param ?? null, code ?? null);
}

const strings = (list) => Array.isArray(list) && list.every((item) => typeof item === 'string');

// Reasons for an HTTP status whose body is not Whence's, because a proxy has answered.
const reasons = {
  400: 'invalid', 401: 'unauthenticated', 403: 'forbidden', 404: 'not_found', 408: 'deadline', 410: 'not_found',
  429: 'overloaded', 502: 'peer_lost', 503: 'unavailable', 504: 'peer_lost',
};

export function refused(status) {
  const reason = reasons[status] ?? (status >= 400 && status < 500 ? 'invalid' : 'internal');
  return failed(reason, `the answer is an HTTP status ${status} that is not Whence's`);
}

// The reasons of errors that may be temporary.
const passing = new Set(['overloaded', 'draining', 'unavailable', 'peer_lost', 'peer_reset']);

export const mayPass = (ending) => passing.has(ending.reason);
