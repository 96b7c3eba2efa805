"""A session of five turns through a client library for Python, with the library's default settings.

    python session.py CLIENT URL

The turns: a tool, a tool that returns an image, a tool that returns a NUL, a call that was cut off, and an
answer that is aborted and then continued. The model behind URL follows a script: it calls the tool that a
question names, says what a tool has returned, and goes on with what it has said.
"""

import json
import sys

MODEL = "whence-tiny"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
RESULTS = {"word.txt": "fox-17", "zip.bin": "PK\x00\x03"}
PICTURE = "a picture of a fox"
CUT = '{"path": "cutmark'
WHOLE = CUT + '"}'  # for libraries that raise an exception instead of sending a call that was cut off
CUT_RESULT = "The call was cut off."


def play(chat):
    """Plays the session. A chat has the methods of Chats below."""
    for path, want in [("word.txt", "fox-17"), ("fox.png", PICTURE), ("zip.bin", "PK")]:
        chat.user(f"Read {path} with the tool.")
        _, calls = chat.turn()
        assert [arguments for _, _, arguments in calls] == [{"path": path}], calls
        if path == "fox.png":
            chat.image(calls[0], PICTURE)
        else:
            chat.result(calls[0], RESULTS[path])
        text, calls = chat.turn()
        assert want in text and "\x00" not in text and not calls, (text, calls)
    chat.cut()
    chat.user("Which call was cut?")
    text, _ = chat.turn()
    assert not chat.sends_cut_calls or "cutmark" in text, text
    chat.user("Tell a story.")
    begun = chat.begin()
    assert begun, "no text before the abort"
    chat.said(begun)
    chat.user("Go on.")
    text, _ = chat.turn()
    assert "I go on" in text, text


class Chats:
    """The chat completions of the package openai. Others differ in what they create."""

    sends_cut_calls = True
    cut_arguments = CUT

    def __init__(self, url):
        from openai import OpenAI

        self.client, self.messages = OpenAI(base_url=url + "/v1", api_key="unused"), []
        self.tools = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]

    def create(self, **more):
        return self.client.chat.completions.create(model=MODEL, messages=self.messages, tools=self.tools, **more)

    def user(self, text):
        self.messages.append({"role": "user", "content": text})

    def turn(self):
        message = self.create().choices[0].message
        self.messages.append(message)
        return message.content, [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]

    def result(self, call, content):
        self.messages.append({"role": "tool", "tool_call_id": call[0], "content": content})

    def image(self, call, text):
        url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}
        self.result(call, [{"type": "text", "text": text}, url])

    def cut(self):
        function = {"name": "read_file", "arguments": self.cut_arguments}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": "call_cut", "type": "function", "function": function}]})
        self.result(("call_cut",), CUT_RESULT)

    def begin(self):
        stream = self.create(stream=True)
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                stream.close()
                return chunk.choices[0].delta.content

    def said(self, text):
        self.messages.append({"role": "assistant", "content": text})


class HuggingFace(Chats):
    def __init__(self, url):
        super().__init__(url)
        from huggingface_hub import InferenceClient

        self.client = InferenceClient(base_url=url + "/v1")

    def create(self, **more):
        return self.client.chat_completion(self.messages, model=MODEL, tools=self.tools, **more)

    def turn(self):
        message = self.create().choices[0].message
        calls = [{"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}} for c in message.tool_calls or []]
        self.messages.append({"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})})
        return message.content, [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


class LiteLLM(Chats):
    """litellm with one of its providers."""

    def __init__(self, url, provider, path, arguments=CUT):
        super().__init__(url)
        self.cut_arguments = arguments
        self.options = {"model": f"{provider}/{MODEL}", "api_base": url + path, "api_key": "unused"}

    def create(self, **more):
        import litellm

        return litellm.completion(messages=self.messages, tools=self.tools, **self.options, **more)

    def begin(self):
        for chunk in self.create(stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                return chunk.choices[0].delta.content # the stream ends with its last reference


class Ollama(Chats):
    def __init__(self, url):
        super().__init__(url)
        from ollama import Client

        self.client = Client(host=url)

    def create(self, **more):
        return self.client.chat(model=MODEL, messages=self.messages, tools=self.tools, **more)

    def turn(self):
        message = self.create().message
        self.messages.append(message)
        return message.content, [(None, c.function.name, dict(c.function.arguments)) for c in message.tool_calls or []]

    def result(self, call, content):
        self.messages.append({"role": "tool", "tool_name": "read_file", "content": content})

    def image(self, call, text):
        self.messages.append({"role": "tool", "tool_name": "read_file", "content": text, "images": [PNG]})

    def cut(self):
        # The package takes only objects as arguments.
        self.messages.append({"role": "assistant", "tool_calls": [{"function": {"name": "read_file", "arguments": {"path": "cutmark"}}}]})
        self.result(None, CUT_RESULT)

    def begin(self):
        for chunk in self.create(stream=True):
            if chunk.message.content:
                return chunk.message.content


class Responses(Chats):
    def __init__(self, url):
        super().__init__(url)
        self.tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA}]

    def create(self, **more):
        return self.client.responses.create(model=MODEL, input=self.messages, tools=self.tools, **more)

    def turn(self):
        response = self.create()
        self.messages += response.output
        return response.output_text, [(i.call_id, i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]

    def result(self, call, content):
        self.messages.append({"type": "function_call_output", "call_id": call[0], "output": content})

    def image(self, call, text):
        self.result(call, [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": "data:image/png;base64," + PNG}])

    def cut(self):
        self.messages.append({"type": "function_call", "call_id": "call_cut", "name": "read_file", "arguments": CUT})
        self.result(("call_cut",), CUT_RESULT)

    def begin(self):
        stream = self.create(stream=True)
        for event in stream:
            if event.type == "response.output_text.delta":
                stream.close()
                return event.delta


class Messages(Chats):
    def __init__(self, url):
        from anthropic import Anthropic

        self.client, self.messages = Anthropic(base_url=url, api_key="unused"), []
        self.tools = [{"name": "read_file", "input_schema": SCHEMA}]
        self.options = {"model": MODEL, "max_tokens": 1024, "tools": self.tools}

    def turn(self):
        message = self.client.messages.create(messages=self.messages, **self.options)
        self.messages.append({"role": "assistant", "content": message.content})
        text = "".join(b.text for b in message.content if b.type == "text")
        return text, [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]

    def result(self, call, content):
        self.messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call[0], "content": content}]})

    def image(self, call, text):
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        self.result(call, [{"type": "text", "text": text}, {"type": "image", "source": source}])

    def cut(self):
        self.messages.append({"role": "user", "content": "Read another file."})
        self.messages.append({"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_cut", "name": "read_file", "input": CUT}]})
        self.result(("toolu_cut",), CUT_RESULT)

    def begin(self):
        with self.client.messages.stream(messages=self.messages, **self.options) as stream:
            return next(iter(stream.text_stream))


class LangChain:
    def __init__(self, model, sends_cut_calls=False):
        from langchain_core.tools import tool

        self.sends_cut_calls = sends_cut_calls  # LangChain leaves them out for the other APIs

        @tool
        def read_file(path: str) -> str:
            """Reads a file."""

        self.model, self.messages = model.bind_tools([read_file]), []

    def user(self, text):
        from langchain_core.messages import HumanMessage

        self.messages.append(HumanMessage(text))

    def turn(self):
        message = self.model.invoke(self.messages)
        self.messages.append(message)
        return message.text, [(c["id"], c["name"], c["args"]) for c in message.tool_calls]

    def result(self, call, content):
        from langchain_core.messages import ToolMessage

        self.messages.append(ToolMessage(content, tool_call_id=call[0]))

    def image(self, call, text):
        self.result(call, [{"type": "text", "text": text}, {"type": "image", "base64": PNG, "mime_type": "image/png"}])

    def cut(self):
        from langchain_core.messages import AIMessage

        self.user("Read another file.")
        call = {"type": "invalid_tool_call", "id": "call_cut", "name": "read_file", "args": CUT, "error": None}
        self.messages.append(AIMessage("", invalid_tool_calls=[call]))
        self.result(("call_cut",), CUT_RESULT)

    def begin(self):
        for chunk in self.model.stream(self.messages):
            if chunk.text:
                return chunk.text

    def said(self, text):
        from langchain_core.messages import AIMessage

        self.messages.append(AIMessage(text))


class LlamaIndex:
    sends_cut_calls = True

    def __init__(self, model, arguments=CUT):
        from llama_index.core.tools import FunctionTool

        self.cut_arguments = arguments

        def read_file(path: str) -> str:
            """Reads a file."""

        self.model, self.messages, self.tools = model, [], [FunctionTool.from_defaults(read_file)]

    def add(self, role, content, **more):
        from llama_index.core.llms import ChatMessage

        self.messages.append(ChatMessage(role=role, content=content, additional_kwargs=more))

    def user(self, text):
        self.add("user", text)

    def turn(self):
        response = self.model.chat_with_tools(self.tools, chat_history=self.messages)
        self.messages.append(response.message)
        calls = self.model.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        return response.message.content, [(c.tool_id, c.tool_name, c.tool_kwargs) for c in calls]

    def result(self, call, content):
        self.add("tool", content, tool_call_id=call[0])

    def image(self, call, text):
        import base64
        from llama_index.core.llms import ImageBlock, TextBlock

        self.result(call, [TextBlock(text=text), ImageBlock(image=base64.b64decode(PNG), image_mimetype="image/png")])

    def cut(self):
        function = {"name": "read_file", "arguments": self.cut_arguments}
        self.add("assistant", None, tool_calls=[{"id": "call_cut", "type": "function", "function": function}])
        self.result(("call_cut",), CUT_RESULT)

    def begin(self):
        for chunk in self.model.stream_chat_with_tools(self.tools, chat_history=self.messages):
            if chunk.delta:
                return chunk.delta

    def said(self, text):
        self.add("assistant", text)


def langchain_openai(url):
    from langchain_openai import ChatOpenAI

    play(LangChain(ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key="unused"), sends_cut_calls=True))


def langchain_anthropic(url):
    from langchain_anthropic import ChatAnthropic

    play(LangChain(ChatAnthropic(model=MODEL, base_url=url, api_key="unused")))


def langchain_ollama(url):
    from langchain_ollama import ChatOllama

    play(LangChain(ChatOllama(model=MODEL, base_url=url)))


def llamaindex_openai(url):
    from llama_index.llms.openai_like import OpenAILike

    play(LlamaIndex(OpenAILike(model=MODEL, api_base=url + "/v1", api_key="unused", is_chat_model=True, is_function_calling_model=True)))


def llamaindex_ollama(url):
    from llama_index.llms.ollama import Ollama as Model

    play(LlamaIndex(Model(model=MODEL, base_url=url), {"path": "cutmark"}))


def pydantic_ai(model):
    """pydantic-ai calls the tools itself and keeps the history."""
    from pydantic_ai import Agent, BinaryContent, ToolReturn
    import base64

    agent = Agent(model)

    @agent.tool_plain
    def read_file(path: str) -> str | ToolReturn:
        if path == "fox.png":
            return [PICTURE, BinaryContent(base64.b64decode(PNG), media_type="image/png")]
        return RESULTS[path]

    history = []
    for path, want in [("word.txt", "fox-17"), ("fox.png", PICTURE), ("zip.bin", "PK")]:
        result = agent.run_sync(f"Read {path} with the tool.", message_history=history)
        history = result.all_messages()
        assert want in result.output, result.output
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

    history.append(ModelRequest([UserPromptPart("Read another file.")]))
    history.append(ModelResponse([ToolCallPart("read_file", CUT, "call_cut")]))
    history.append(ModelRequest([ToolReturnPart("read_file", CUT_RESULT, "call_cut")]))
    result = agent.run_sync("Which call was cut?", message_history=history)
    assert "cutmark" in result.output, result.output
    history = result.all_messages()

    async def begin():
        async with agent.run_stream("Tell a story.", message_history=history) as stream:
            async for text in stream.stream_text(debounce_by=None):
                return text

    import asyncio

    begun = asyncio.run(begin())
    assert begun
    history += [ModelRequest([UserPromptPart("Tell a story.")]), ModelResponse([TextPart(begun)])]
    result = agent.run_sync("Go on.", message_history=history)
    assert "I go on" in result.output, result.output


def pydantic_ai_openai(url):
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    pydantic_ai(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key="unused")))


def pydantic_ai_responses(url):
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    pydantic_ai(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key="unused")))


def pydantic_ai_anthropic(url):
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    pydantic_ai(AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key="unused")))


def instructor(url):
    """instructor has no conversations: it forces a call whose arguments are the answer."""
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Word(BaseModel):
        path: str

    client = instructor.from_openai(OpenAI(base_url=url + "/v1", api_key="unused"))
    question = [{"role": "user", "content": "Read word.txt with the tool."}]
    assert client.chat.completions.create(model=MODEL, response_model=Word, messages=question).path == "word.txt"


def claude_agent_sdk(url):
    """claude-agent-sdk runs the Claude Code that its package contains, which calls the tools itself."""
    import asyncio
    import base64
    import os

    os.environ.update(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="unused", ANTHROPIC_MODEL=MODEL, ANTHROPIC_DEFAULT_HAIKU_MODEL=MODEL)
    from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, create_sdk_mcp_server, tool

    @tool("read_file", "Reads a file", {"path": str})
    async def read_file(arguments):
        if arguments["path"] == "fox.png":
            return {"content": [{"type": "text", "text": PICTURE}, {"type": "image", "data": PNG, "mimeType": "image/png"}]}
        return {"content": [{"type": "text", "text": RESULTS[arguments["path"]]}]}

    options = ClaudeAgentOptions(
        mcp_servers={"files": create_sdk_mcp_server("files", tools=[read_file])},
        allowed_tools=["mcp__files__read_file"],
        include_partial_messages=True,
    )

    async def session():
        async with ClaudeSDKClient(options) as client:
            for path, want in [("word.txt", "fox-17"), ("fox.png", PICTURE), ("zip.bin", "PK")]:
                await client.query(f"Read {path} with the tool.")
                results = [m.result async for m in client.receive_response() if isinstance(m, ResultMessage)]
                assert want in results[-1], results
            await client.query("Tell a story.")
            async for message in client.receive_messages():
                if getattr(message, "event", {}).get("type") == "content_block_delta":
                    break
            await client.interrupt()
            async for _ in client.receive_response():
                pass
            await client.query("Go on.")
            results = [m.result async for m in client.receive_response() if isinstance(m, ResultMessage)]
            assert "I go on" in results[-1], results

    asyncio.run(session())


CLIENTS = {
    "openai": lambda url: play(Chats(url)),
    "openai-responses": lambda url: play(Responses(url)),
    "anthropic": lambda url: play(Messages(url)),
    "huggingface_hub": lambda url: play(HuggingFace(url)),
    "ollama": lambda url: play(Ollama(url)),
    "litellm-openai": lambda url: play(LiteLLM(url, "openai", "/v1")),
    "litellm-hosted_vllm": lambda url: play(LiteLLM(url, "hosted_vllm", "/v1")),
    "litellm-mistral": lambda url: play(LiteLLM(url, "mistral", "/v1")),
    "litellm-anthropic": lambda url: play(LiteLLM(url, "anthropic", "", WHOLE)),
    "litellm-ollama_chat": lambda url: play(LiteLLM(url, "ollama_chat", "", WHOLE)),
    "langchain-openai": langchain_openai,
    "langchain-anthropic": langchain_anthropic,
    "langchain-ollama": langchain_ollama,
    "llama-index": llamaindex_openai,
    "llama-index-ollama": llamaindex_ollama,
    "pydantic-ai": pydantic_ai_openai,
    "pydantic-ai-responses": pydantic_ai_responses,
    "pydantic-ai-anthropic": pydantic_ai_anthropic,
    "instructor": instructor,
    "claude-agent-sdk": claude_agent_sdk,
}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](sys.argv[2])
