package edge_test

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/image"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/internal/wstest"
)

// showing adds images to the first message of a client's message.
func showing(in *chatv1.ConverseRequest, images ...string) *chatv1.ConverseRequest {
	messages := in.GetChat().GetMessages()
	if in.GetTurn() != nil {
		messages = in.GetTurn().GetMessages()
	}
	for _, data := range images {
		messages[0].Images = append(messages[0].Images, &chatv1.PlacedImage{Image: &llmv1.Image{Data: []byte(data), MediaType: "image/gif"}})
	}
	return in
}

// hugePNG returns the header of a PNG with 1048576 x 1048576 pixels.
func hugePNG() string {
	b := []byte(seeingtest.PNG)
	binary.BigEndian.PutUint32(b[16:], 1<<20)
	binary.BigEndian.PutUint32(b[20:], 1<<20)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return string(b)
}

func imageLimits(count int) func(*edge.Config) {
	return func(c *edge.Config) {
		c.Images = image.Limits{Count: count, Bytes: 100, Timeout: image.DefaultTimeout, URLs: image.None}
	}
}

func TestImagesOfConversationsAreBounded(t *testing.T) {
	const script, png = "start m say hi end x", seeingtest.PNG
	prompt := &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: &chatv1.ChatRequest{
		Model: "m", Prompts: []*chatv1.Prompt{{}, {Images: []*llmv1.Image{{Data: []byte(hugePNG()), MediaType: "image/png"}}}},
	}}}
	for name, c := range map[string]struct {
		count       int
		first, turn *chatv1.ConverseRequest // the last of them is refused; turn may be nil
		param, says string
	}{
		"images are off":            {0, showing(chatOf(script), png), nil, "chat.messages[0].images[0]", "--max-images"},
		"images are off for a turn": {0, chatOf(script), showing(turnWith(script), png), "turn.messages[0].images[0]", "--max-images"},
		"huge image":                {2, showing(chatOf(script), png, hugePNG()), nil, "chat.messages[0].images[1]", "1048576 x 1048576 pixels"},
		"huge image in a turn":      {2, chatOf(script), showing(turnWith(script), hugePNG()), "turn.messages[0].images[0]", "1048576 x 1048576 pixels"},
		"huge image of a prompt":    {2, prompt, nil, "chat.prompts[1].images[0]", "1048576 x 1048576 pixels"},
		"too many images":           {2, showing(chatOf(script), png, png, png), nil, "chat.messages[0].images[2]", "too many images: at most 2"},
		"too many images together":  {2, showing(chatOf(script), png), showing(turnWith(script), png, png), "turn.messages[0].images[1]", "too many images: at most 2"},
		"too many bytes":            {8, showing(chatOf(script), png, png, png, png), nil, "chat.messages[0].images[3]", "100 bytes together"},
		"too many bytes together":   {8, showing(chatOf(script), png, png, png), showing(turnWith(script), png), "turn.messages[0].images[0]", "100 bytes together"},
		"no image":                  {2, showing(chatOf(script), "<html>"), nil, "chat.messages[0].images[0]", "not an image"},
		"no data":                   {2, chatOf(script), showing(turnWith(script), ""), "turn.messages[0].images[0]", "not an image"},
	} {
		for _, form := range []byte{wstest.Text, wstest.Binary} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				url, chat := start(t, imageLimits(c.count))
				client, turns := converse(t, url, ""), 0
				sayAs(t, client, form, c.first)
				if c.turn != nil {
					awaitTurnEnd(t, client, form)
					turns = 1
					sayAs(t, client, form, c.turn)
				}
				e := client.End()
				wantEnd(t, e, "invalid", "api-service", 4012)
				var last struct {
					Error struct{ Param, Message string }
				}
				if err := json.Unmarshal([]byte(e.Last()), &last); err != nil || last.Error.Param != c.param || !strings.Contains(last.Error.Message, c.says) {
					t.Errorf("%v: %s; want %s and %q", err, e.Last(), c.param, c.says)
				}
				if got := len(chat.begun); got != turns {
					t.Errorf("chat-service got %d turns; want %d", got, turns)
				}
			})
		}
	}
}

func TestBytesDecideTheTypesOfImagesOfConversations(t *testing.T) {
	url, chat := start(t, imageLimits(2))
	client := converse(t, url, "")
	for _, in := range []*chatv1.ConverseRequest{chatOf("start m end x"), turnWith("start m end x")} {
		say(t, client, showing(in, seeingtest.PNG))
		client.Until("turn_end")
		images := chat.request.Load().GetMessages()[0].GetImages()
		if len(images) != 1 || string(images[0].GetImage().GetData()) != seeingtest.PNG || images[0].GetImage().GetMediaType() != seeingtest.MediaType {
			t.Errorf("chat-service got %v", images)
		}
	}
	client.Say("{}")
	wantEnd(t, client.End(), "completed", "engine > chat-service > api-service", 1000)
}

// sayAs sends a message in a text frame or in a binary frame.
func sayAs(t *testing.T, c *wstest.Client, form byte, in *chatv1.ConverseRequest) {
	t.Helper()
	if form == wstest.Text {
		say(t, c, in)
		return
	}
	b, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	c.Send(wstest.Binary, b)
}

// awaitTurnEnd reads until the end of an answer.
func awaitTurnEnd(t *testing.T, c *wstest.Client, form byte) {
	t.Helper()
	if form == wstest.Text {
		c.Until("turn_end")
		return
	}
	for {
		opcode, payload := c.Next()
		var out chatv1.ConverseResponse
		if err := proto.Unmarshal(payload, &out); opcode != wstest.Binary || err != nil {
			t.Fatal(opcode, payload, err)
		}
		if out.GetTurnEnd() != nil {
			return
		}
	}
}
