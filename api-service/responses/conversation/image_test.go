package conversation_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/responses/conversation"
)

func TestImagesOfAUsersMessageKeepTheirPlaces(t *testing.T) {
	c, err := conversation.Parse(nil, "input", []byte(`[{"role":"system","content":"s"},{"role":"user","content":[
		{"type":"input_text","text":"äb"},{"type":"input_image","image_url":"https://a/1","detail":"auto"},
		{"type":"input_text","text":"c"},{"type":"input_image","image_url":"data:2","file_id":null}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	m, images := c.Messages[1], c.Images
	if m.GetContent() != "äbc" || len(m.GetImages()) != 2 || m.GetImages()[0].GetOffset() != 3 || m.GetImages()[1].GetOffset() != 4 {
		t.Error(m)
	}
	if len(images) != 2 || images[0].URL != "https://a/1" || images[0].Param != "input[1].content[1].image_url" || images[0].To != m.GetImages()[0].GetImage() || images[1].URL != "data:2" {
		t.Errorf("%+v", images)
	}
}
