// An OpenAI-compatible completions server around a real llama.cpp, for the tests of the worker's
// engine "openai":
//
//   node server.mjs MODEL.gguf KIND CONTEXT
//
// listens on a free port of the loopback and prints it. KIND is whom it resembles: "vllm" takes token ids and answers with token
// ids, "llamacpp" takes token ids and answers with text, "library", as Ollama's models are called, takes and gives text alone.
// "native" has the routes of llama.cpp's own server, of which /completion sends no event for a token that ends within a character.
// It enforces json_schema and grammar there. It decodes greedily, several requests in one batch, and aborts when the connection closes.
import http from 'node:http'
import { getLlama, LlamaGrammarEvaluationState, TokenBias } from 'node-llama-cpp'

const [gguf, kind, context] = process.argv.slice(2)
const parallel = 4
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', maxThreads: 1 })
const model = await llama.loadModel({ modelPath: gguf })
const free = []
const waiting = []
const shared = await model.createContext({ contextSize: +context, sequences: parallel })
for (let i = 0; i < parallel; i++) free.push(shared.getSequence())

const endings = []
for (const token of model.iterateAllTokens()) if (model.isEogToken(token)) endings.push(token)

const refuse = (res, status, message) => {
  res.writeHead(status, { 'Content-Type': 'application/json' })
  res.end(JSON.stringify({ error: { message, type: 'invalid_request_error' } }))
}

// penalties returns what a request says of the tokens before the next one, which are in tokens.
const penalties = (asked, tokens) => {
  const { repeat_penalty: penalty = 1, frequency_penalty: frequencyPenalty = 0, presence_penalty: presencePenalty = 0 } = asked
  if (penalty === 1 && !frequencyPenalty && !presencePenalty) return undefined
  return { punishTokens: () => tokens.slice(-asked.repeat_last_n), maxPunishTokens: asked.repeat_last_n, penalty, frequencyPenalty, presencePenalty }
}

// unfit returns why a newer llama.cpp, or this one, refuses a request.
const unfit = (asked) => {
  if (asked.temperature !== 0) return 'this server only decodes greedily'
  if (asked.repeat_last_n < 0) return `Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got ${asked.repeat_last_n}`
}

// native answers POST /completion as llama.cpp's server does.
async function native(asked, res) {
  if (unfit(asked)) return refuse(res, 400, unfit(asked))
  const bias = new TokenBias(model.tokenizer)
  if (asked.ignore_eos) for (const token of endings) bias.set(token, 'never')
  const grammar = asked.grammar
    ? await llama.createGrammar({ grammar: asked.grammar })
    : asked.json_schema && (await llama.createGrammarForJsonSchema(asked.json_schema))
  const grammarEvaluationState = grammar && new LlamaGrammarEvaluationState({ model, grammar })
  await generate(res, async (sequence, gone) => {
    const event = (more) => res.write(`data: ${JSON.stringify({ index: 0, content: '', tokens: [], stop: false, id_slot: -1, tokens_evaluated: asked.prompt.length, ...more })}\n\n`)
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    const answer = []
    let told = ''
    let type = 'limit'
    await sequence.clearHistory()
    const all = [...asked.prompt]
    const options = { temperature: 0, yieldEogToken: true, tokenBias: bias, grammarEvaluationState, repeatPenalty: penalties(asked, all) }
    for await (const token of sequence.evaluate([...asked.prompt], options)) {
      if (gone()) return
      answer.push(token)
      all.push(token)
      const ends = model.isEogToken(token)
      const text = ends ? told : model.detokenize(answer, false)
      if (!text.endsWith('\uFFFD')) {
        event({ content: text.slice(told.length), tokens: [token], tokens_predicted: answer.length })
        told = text
      }
      if (ends) type = 'eos'
      if (ends || answer.length >= asked.n_predict) break
    }
    event({ tokens_predicted: answer.length, stop: true, stop_type: type, timings: { cache_n: 0, prompt_n: asked.prompt.length } })
    res.end()
  })
}

// generate calls answer with a free sequence.
async function generate(res, answer) {
  let gone = false
  res.on('close', () => (gone = true))
  const sequence = free.pop() ?? (await new Promise((taken) => waiting.push(taken)))
  try {
    if (!gone) await answer(sequence, () => gone)
  } finally {
    const next = waiting.shift()
    if (next) next(sequence)
    else free.push(sequence)
  }
}

async function bodyOf(req) {
  let body = ''
  for await (const part of req) body += part
  return JSON.parse(body)
}

async function complete(asked, res) {
  if (kind === 'library' && typeof asked.prompt !== 'string') return refuse(res, 400, 'prompt must be a string')
  if (unfit(asked)) return refuse(res, 400, unfit(asked))
  const prompt = typeof asked.prompt === 'string' ? model.tokenize(asked.prompt, true) : asked.prompt
  const bias = new TokenBias(model.tokenizer)
  if (asked.ignore_eos) for (const token of endings) bias.set(token, 'never')

  await generate(res, async (sequence, gone) => {
    const send = (choice, more) =>
      res.write(`data: ${JSON.stringify({ object: 'text_completion', choices: choice ? [{ index: 0, text: '', finish_reason: null, ...choice }] : [], ...more })}\n\n`)
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    const answer = []
    let told = ''
    let finish = 'length'
    await sequence.clearHistory()
    const all = [...prompt]
    const options = { temperature: 0, yieldEogToken: true, tokenBias: bias, repeatPenalty: penalties(asked, all) }
    for await (const token of sequence.evaluate([...prompt], options)) {
      if (gone()) return
      answer.push(token)
      all.push(token)
      if (model.isEogToken(token)) {
        finish = 'stop'
        if (asked.return_token_ids) send({ token_ids: [token] })
        break
      }
      if (asked.return_token_ids) {
        send({ token_ids: [token] })
      } else {
        const text = model.detokenize(answer, false)
        if (!text.endsWith('\uFFFD')) { // like llama.cpp's server: an incomplete character waits for the rest
          send({ text: text.slice(told.length) })
          told = text
        }
      }
      if (answer.length >= asked.max_tokens) break
    }
    send({ finish_reason: finish })
    if (asked.stream_options?.include_usage) {
      send(null, { usage: { prompt_tokens: prompt.length, completion_tokens: answer.length, total_tokens: prompt.length + answer.length } })
    }
    res.end('data: [DONE]\n\n')
  })
}

const server = http.createServer((req, res) => {
  if (req.method === 'GET' && req.url === '/v1/models') {
    res.setHeader('Content-Type', 'application/json')
    return res.end(JSON.stringify({ object: 'list', data: [{ id: 'whence-tiny.gguf', object: 'model', owned_by: kind }] }))
  }
  if (kind === 'native' && req.method === 'GET' && req.url === '/props') {
    res.setHeader('Content-Type', 'application/json')
    return res.end(JSON.stringify({ default_generation_settings: { n_ctx: +context / parallel }, total_slots: parallel, model_path: gguf }))
  }
  const answer = { '/v1/completions': complete, ...(kind === 'native' && { '/completion': native }) }[req.url]
  if (req.method !== 'POST' || !answer) return refuse(res, 404, 'there is no such route')
  const answered = bodyOf(req).then((asked) => answer(asked, res))
  answered.catch((err) => {
    if (res.headersSent) res.destroy()
    else refuse(res, 500, String(err))
  })
})
process.on('SIGTERM', () => process.exit(0))
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`))
