package prompt

import "testing"

func TestTemplateShowsHowItsModelAnswers(t *testing.T) {
	const (
		user  = "{% for m in messages %}{% if m.role == 'user' %}[u]{{ m.content }}{% elif m.role == 'tool' %}[t]{{ m.content }}{% else %}[a]"
		calls = "{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}[e]"
		end   = "{% endif %}{% endfor %}"
	)
	const (
		weather = `<call>get_weather{"city": "Paris", "days": 2, "deep": true}</call>`
		search  = `<call>search{"query": "Xqgamma"}</call>`
	)
	for _, c := range []struct {
		source string
		field  string
		want   Samples
	}{
		{user + calls + end, "", Samples{Call: weather, Calls: weather + search}},
		{"{% if tools %}<tools>{% for t in tools %}{{ t.function.name }} {% endfor %}</tools>{% endif %}" + user + calls + end, "", Samples{
			Call: weather, Calls: weather + search, Tools: "<tools>get_weather search </tools>",
		}},
		{user + "<think>{{ m.reasoning_content or '' }}</think>" + calls + end, "reasoning_content", Samples{
			Call: weather, Calls: weather + search, Reasoning: "[a]<think>Xqzeta</think>Xqbeta[e]",
		}},
		{user + "{% if m.thinking and m.tool_calls %}<analysis>{{ m.thinking }}{% endif %}" + calls + end, "thinking", Samples{
			Call: weather, Calls: weather + search, Reasoning: "<analysis>Xqzeta" + weather + "[e][t]",
		}},
		{user + "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ '[' + p.type + ']' + p[p.type] }}{% endfor %}{% endif %}" + end, "content", Samples{
			Reasoning: "[thinking]Xqzeta[text]Xqbeta",
		}},
		{user + "{{ m.content }}" + end, "", Samples{}},
		{user + "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}" + calls + end, "", Samples{Call: weather}},
	} {
		template, err := New(c.source, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.Traits(); got.Written != c.want || got.Form.Reasoning != c.field {
			t.Errorf("%s:\n got %q, %q\nwant %q, %q", c.source, got.Written, got.Form.Reasoning, c.want, c.field)
		}
	}
}
