package toolcall

import "regexp"

// lacking are formats without a parser. Their calls have no marker, or one that is a part of prose, so
// that text could not be told from calls. A model of such a family is refused by the format's name.
var lacking = []*Format{
	{
		Name: "chatglm", detect: regexp.MustCompile(`<\|observation\|>`),
		Lacks: "ChatGLM 3 and GLM 4 9B write the name of a tool, a line end and an object, without a marker",
	},
	{
		Name: "react", detect: regexp.MustCompile(`Action Input:`),
		Lacks: "a ReAct prompt has lines of Thought, Action and Action Input, and a result is text of the same turn",
	},
	{
		Name: "qwen-agent", detect: regexp.MustCompile(`✿FUNCTION✿`),
		Lacks: "Qwen 2's agent library writes ✿FUNCTION✿ and ✿ARGS✿ and needs stop words of its own",
	},
	{
		Name: "functioncall", detect: regexp.MustCompile(`<functioncall>`),
		Lacks: "fine-tuned models write an object whose arguments are in single quotes after <functioncall>",
	},
}
