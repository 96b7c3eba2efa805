export { WhenceError } from './ending.js';
export { Whence } from './whence.js';
