import com.anthropic.client.AnthropicClient;
import com.anthropic.client.okhttp.AnthropicOkHttpClient;
import com.anthropic.models.messages.Base64ImageSource;
import com.anthropic.models.messages.ContentBlock;
import com.anthropic.models.messages.ContentBlockParam;
import com.anthropic.models.messages.ImageBlockParam;
import com.anthropic.models.messages.MessageCreateParams;
import com.anthropic.models.messages.TextBlockParam;
import com.anthropic.models.messages.Tool;
import com.anthropic.models.messages.ToolResultBlockParam;
import com.anthropic.models.messages.ToolUseBlockParam;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.models.FunctionDefinition;
import com.openai.models.FunctionParameters;
import com.openai.models.chat.completions.ChatCompletionAssistantMessageParam;
import com.openai.models.chat.completions.ChatCompletionContentPart;
import com.openai.models.chat.completions.ChatCompletionContentPartImage;
import com.openai.models.chat.completions.ChatCompletionContentPartText;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionFunctionTool;
import com.openai.models.chat.completions.ChatCompletionMessageFunctionToolCall;
import com.openai.models.chat.completions.ChatCompletionToolMessageParam;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.data.message.ImageContent;
import dev.langchain4j.data.message.TextContent;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * The session of ../python/session.py, through the client libraries for Java, with their default settings.
 *
 * <p>java -cp 'LIBRARIES/*' Session.java CLIENT URL
 */
class Session {
  static final String MODEL = "whence-tiny", PICTURE = "a picture of a fox", CUT = "{\"path\": \"cutmark", CUT_RESULT = "The call was cut off.";
  static final String PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

  record Call(String id, String arguments) {}

  record Turn(String text, List<Call> calls) {}

  /** A conversation with the model. */
  interface Chat {
    void user(String text);

    Turn turn();

    void result(String id, String content);

    /** Adds a result with an image, or an image of the user where the library has no place for one in a result. */
    void image(String id, String text);

    void cut();

    /** Returns the first piece of a streamed answer, and aborts the stream. */
    String begin();

    void said(String text);
  }

  public static void main(String[] args) {
    Chat chat = switch (args[0]) {
      case "openai-java" -> new Chats(args[1]);
      case "anthropic-java" -> new Messages(args[1]);
      case "langchain4j" -> new LangChain(args[1]);
      default -> throw new IllegalArgumentException(args[0]);
    };
    Map<String, String> results = Map.of("word.txt", "fox-17", "fox.png", PICTURE, "zip.bin", "PK\0\3");
    for (String path : List.of("word.txt", "fox.png", "zip.bin")) {
      chat.user("Read " + path + " with the tool.");
      Call call = chat.turn().calls().get(0);
      expect(call.arguments(), path);
      if (path.equals("fox.png")) {
        chat.image(call.id(), PICTURE);
      } else {
        chat.result(call.id(), results.get(path));
      }
      expect(chat.turn().text(), results.get(path).substring(0, 2));
    }
    chat.cut();
    chat.user("Which call was cut?");
    expect(chat.turn().text(), "cutmark");
    chat.user("Tell a story.");
    chat.said(chat.begin());
    chat.user("Go on.");
    expect(chat.turn().text(), "I go on");
    System.exit(0); // the libraries' idle threads would keep the program for a minute
  }

  static void expect(String text, String part) {
    if (!text.contains(part)) {
      throw new AssertionError(text + " has no " + part);
    }
  }

  static class Chats implements Chat {
    final OpenAIClient client;
    final ChatCompletionCreateParams.Builder params = ChatCompletionCreateParams.builder().model(MODEL);

    Chats(String url) {
      client = OpenAIOkHttpClient.builder().baseUrl(url + "/v1").apiKey("unused").build();
      var schema = FunctionParameters.builder().putAdditionalProperty("type", com.openai.core.JsonValue.from("object"))
          .putAdditionalProperty("properties", com.openai.core.JsonValue.from(Map.of("path", Map.of("type", "string")))).build();
      params.addTool(ChatCompletionFunctionTool.builder().function(FunctionDefinition.builder().name("read_file").parameters(schema).build()).build());
    }

    public void user(String text) {
      params.addUserMessage(text);
    }

    public Turn turn() {
      var message = client.chat().completions().create(params.build()).choices().get(0).message();
      params.addMessage(message);
      var calls = message.toolCalls().orElse(List.of()).stream().map(c -> c.asFunction()).map(c -> new Call(c.id(), c.function().arguments())).toList();
      return new Turn(message.content().orElse(""), calls);
    }

    public void result(String id, String content) {
      params.addMessage(ChatCompletionToolMessageParam.builder().toolCallId(id).content(content).build());
    }

    public void image(String id, String text) {
      result(id, text);
      var url = ChatCompletionContentPartImage.ImageUrl.builder().url("data:image/png;base64," + PNG).build();
      params.addUserMessageOfArrayOfContentParts(List.of(
          ChatCompletionContentPart.ofText(ChatCompletionContentPartText.builder().text("This is the image.").build()),
          ChatCompletionContentPart.ofImageUrl(ChatCompletionContentPartImage.builder().imageUrl(url).build())));
    }

    public void cut() {
      var function = ChatCompletionMessageFunctionToolCall.Function.builder().name("read_file").arguments(CUT).build();
      params.addMessage(ChatCompletionAssistantMessageParam.builder()
          .addToolCall(ChatCompletionMessageFunctionToolCall.builder().id("call_cut").function(function).build()).build());
      result("call_cut", CUT_RESULT);
    }

    public String begin() {
      try (var stream = client.chat().completions().createStreaming(params.build())) {
        return stream.stream().flatMap(chunk -> chunk.choices().stream()).flatMap(choice -> choice.delta().content().stream())
            .filter(text -> !text.isEmpty()).findFirst().orElseThrow();
      }
    }

    public void said(String text) {
      params.addMessage(ChatCompletionAssistantMessageParam.builder().content(text).build());
    }
  }

  static class Messages implements Chat {
    final AnthropicClient client;
    final MessageCreateParams.Builder params = MessageCreateParams.builder().model(MODEL).maxTokens(1024);

    Messages(String url) {
      client = AnthropicOkHttpClient.builder().baseUrl(url).apiKey("unused").build();
      var properties = Tool.InputSchema.Properties.builder().putAdditionalProperty("path", com.anthropic.core.JsonValue.from(Map.of("type", "string"))).build();
      params.addTool(Tool.builder().name("read_file").inputSchema(Tool.InputSchema.builder().properties(properties).build()).build());
    }

    public void user(String text) {
      params.addUserMessage(text);
    }

    public Turn turn() {
      var message = client.messages().create(params.build());
      params.addMessage(message);
      StringBuilder text = new StringBuilder();
      List<Call> calls = new ArrayList<>();
      for (ContentBlock block : message.content()) {
        block.text().ifPresent(b -> text.append(b.text()));
        block.toolUse().ifPresent(b -> calls.add(new Call(b.id(), b._input().toString())));
      }
      return new Turn(text.toString(), calls);
    }

    void result(ToolResultBlockParam result) {
      params.addUserMessageOfContentBlockParams(List.of(ContentBlockParam.ofToolResult(result)));
    }

    public void result(String id, String content) {
      result(ToolResultBlockParam.builder().toolUseId(id).content(content).build());
    }

    public void image(String id, String text) {
      var source = Base64ImageSource.builder().data(PNG).mediaType(Base64ImageSource.MediaType.IMAGE_PNG).build();
      result(ToolResultBlockParam.builder().toolUseId(id).contentOfBlocks(List.of(
          ToolResultBlockParam.Content.Block.ofText(TextBlockParam.builder().text(text).build()),
          ToolResultBlockParam.Content.Block.ofImage(ImageBlockParam.builder().source(source).build()))).build());
    }

    public void cut() {
      params.addUserMessage("Read another file.");
      params.addAssistantMessageOfContentBlockParams(List.of(ContentBlockParam.ofToolUse(
          ToolUseBlockParam.builder().id("toolu_cut").name("read_file").input(com.anthropic.core.JsonValue.from(CUT)).build())));
      result("toolu_cut", CUT_RESULT);
    }

    public String begin() {
      try (var stream = client.messages().createStreaming(params.build())) {
        return stream.stream().flatMap(e -> e.contentBlockDelta().stream()).flatMap(e -> e.delta().text().stream()).map(d -> d.text()).findFirst().orElseThrow();
      }
    }

    public void said(String text) {
      params.addAssistantMessage(text);
    }
  }

  static class LangChain implements Chat {
    final OpenAiChatModel model;
    final OpenAiStreamingChatModel streaming;
    final List<ChatMessage> messages = new ArrayList<>();
    final ToolSpecification tool = ToolSpecification.builder().name("read_file").parameters(JsonObjectSchema.builder().addStringProperty("path").build()).build();
    AiMessage last;

    LangChain(String url) {
      model = OpenAiChatModel.builder().baseUrl(url + "/v1").apiKey("unused").modelName(MODEL).build();
      streaming = OpenAiStreamingChatModel.builder().baseUrl(url + "/v1").apiKey("unused").modelName(MODEL).build();
    }

    ChatRequest request() {
      return ChatRequest.builder().messages(messages).toolSpecifications(tool).build();
    }

    public void user(String text) {
      messages.add(UserMessage.from(text));
    }

    public Turn turn() {
      last = model.chat(request()).aiMessage();
      messages.add(last);
      var calls = last.toolExecutionRequests().stream().map(c -> new Call(c.id(), c.arguments())).toList();
      return new Turn(last.text() == null ? "" : last.text(), calls);
    }

    public void result(String id, String content) {
      messages.add(ToolExecutionResultMessage.from(id, "read_file", content));
    }

    public void image(String id, String text) {
      result(id, text);
      messages.add(UserMessage.from(TextContent.from("This is the image."), ImageContent.from(PNG, "image/png")));
    }

    public void cut() {
      messages.add(AiMessage.from(ToolExecutionRequest.builder().id("call_cut").name("read_file").arguments(CUT).build()));
      result("call_cut", CUT_RESULT);
    }

    public String begin() {
      CompletableFuture<String> first = new CompletableFuture<>();
      streaming.chat(request(), new StreamingChatResponseHandler() {
        @Override
        public void onPartialResponse(PartialResponse partial, PartialResponseContext context) {
          first.complete(partial.text());
          context.streamingHandle().cancel();
        }

        @Override
        public void onCompleteResponse(ChatResponse response) {
          first.completeExceptionally(new AssertionError("the answer is complete"));
        }

        @Override
        public void onError(Throwable error) {
          first.completeExceptionally(error);
        }
      });
      return first.join();
    }

    public void said(String text) {
      messages.add(AiMessage.from(text));
    }
  }
}
