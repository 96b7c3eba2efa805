package main

import "strings"

// languages has some words of each language; the first three have apostrophes.
var languages = fields(
	`the of and to in is that it for was on are with as they be at one have this from by hot but what some there we can out other were
	 all your when up use word how said an each she which do their time if will way about many then them would write like so these her
	 long make thing see him two has look more day could go come did my sound no most number who over know water than call first people
	 may down side been now find tokenizer incremental unbelievable internationalization anti-disestablishmentarianism`,
	`le la les de des du un une et est dans que qui pour pas sur avec ce il elle nous vous être avoir faire très où déjà français
	 l'homme d'été aujourd'hui c'est qu'il garçon œuvre naïve Noël cœur forêt hôtel événement`,
	`il lo la gli di da un'altra è perché città più dell'anno l'università così già può però dov'è ragazzo acqua`,
	`der die das und ist nicht mit für von auf ein eine sich dem den auch Straße Größe Übung Äpfel öffnen Donaudampfschifffahrtsgesellschaft`,
	`el los las que por una para con más está también año niño corazón ¿qué ¡hola! pingüino mañana`,
	`o os uma não com mais então coração avó avô português ação São`,
	`i w na nie się że jest źdźbło żółw gęś łódź dziękuję książka chrząszcz brzmi trzcinie`,
	`bir ve bu için çok değil İstanbul ışık şöyle güzel öğretmen çekoslovakyalılaştıramadıklarımızdanmışsınız`,
	`và của là không người được một những Việt Nam tiếng Nguyễn đường phở thế giới`,
	`и в не на что он как это по мы привет мир здравствуйте человек объём съёмка ёлка Россия достопримечательность`,
	`і в не на що як це ґанок їжак під'їзд Україна`,
	`και το να η του με που δεν Ελλάδα κόσμος άνθρωπος γειά ΰ ὁ ἀνήρ`,
	`של את על לא זה שלום עולם ירושלים שָׁלוֹם`,
	`في من على إلى هذا مرحبا العالم السلام عليكم لا إله القرآن ٱلْحَمْدُ`,
	"یک این است می\u200cخواهم کتاب\u200cها دوست پارسی",
	`है में का की और नमस्ते दुनिया क्षत्रिय हिन्दी ज़िंदगी`,
	`আমি তুমি বাংলা ভালোবাসা ক্ষমা বিশ্ব`,
	`வணக்கம் தமிழ் உலகம் நன்றி ஸ்ரீ`,
	`สวัสดี ชาวโลก ภาษาไทย น้ำ ทำไม กรุงเทพมหานคร`,
	`မြန်မာ မင်္ဂလာပါ ကမ္ဘာ`,
	`ជំរាបសួរ ខ្មែរ ពិភពលោក`,
	`გამარჯობა მსოფლიო საქართველო`,
	`բարև աշխարհ Հայաստան և`,
	`ሰላም ዓለም ኢትዮጵያ`,
	`的 一 是 不 了 在 人 有 我 他 这 中文 世界 你好 今天 天气 怎么样 人工智能 龘 𠮷野家 㐀`,
	`臺灣 繁體 中文 鬱鬱蔥蔥 學習 說話`,
	`の は を に が 東京 タワー ひらがな カタカナ ｶﾞｷﾞ 漢字 です ます 食べる ゔ ー 々 〆切`,
	`안녕하세요 세계 한국어 은 는 이 가 을 를 대한민국 ㅋㅋㅋ 각 뷁`,
	`ᚠᛇᚻ 𐍈𐌰𐌹 𒀀𒁀 𓀀𓂀 ᠮᠣᠩᠭᠣᠯ བོད་ ᏣᎳᎩ ⵜⴰⵎⴰⵣⵉⵖⵜ 𞤀𞤣𞤤𞤢𞤥`,
)

// unspaced has the languages without spaces between words, by their first words.
var unspaced = map[string]bool{"的": true, "臺灣": true, "の": true, "สวัสดี": true, "မြန်မာ": true, "ជំរាបសួរ": true}

func fields(texts ...string) [][]string {
	lists := make([][]string, len(texts))
	for i, text := range texts {
		lists[i] = strings.Fields(text)
	}
	return lists
}

var (
	endings = []string{"", ".", "!", "?", "...", "…", "。", "！", "؟", "।", "\n", ".\n\n", " ", "\"", "»", ")"}

	emojis = []string{
		"🙂", "😀", "🤯", "❤️", "❤", "♥", "👍🏽", "👩🏿‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🏴‍☠️", "🇫🇷", "🇯🇵", "🇫", "1️⃣", "#️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🧑‍🤝‍🧑", "👁️‍🗨️", "🫠", "🪿", "🏿", "⚧️",
		"☺", "☺️", "✈", "™", "©️", "🀄", "🃏",
	}

	codes = []string{
		"func", "return", "if", "else", "for", "while", "def", "class", "import", "SELECT", "FROM", "where", "const", "let", "x", "i", "tmp",
		"self.value", "getElementById", "HTTPServer", "snake_case_name", "SCREAMING_CASE", "kebab-case", "__init__", "(", ")", "{", "}", "[", "]",
		"<", ">", "</div>", "<div class=\"a b\">", "==", "!=", "===", "=>", "->", "::", ":=", "+=", "&&", "||", "//", "/*", "*/", "#", "# comment",
		"\"string\"", "'c'", "`raw`", "\"\\n\"", "\\", "\\\\", "0x1F", "1e-9", "3.14", "1_000", "42", ";", ",", ".", "...", "@", "$", "${x}", "%s", "%d",
		"http://example.org/a?b=c&d=%20#e", "user@example.org", "/usr/bin/env", "C:\\Users", "--flag=value", "-x", "&nbsp;", "!!", "??", "?.", "<?php", "*args",
		"**kw", "~", "^", "```go", "```", "- [ ]", "| a | b |", "---",
	}

	whites = []string{
		" ", " ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2003", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u1680",
		"\u200b", "\u2060", "\ufeff", "\u180e", "\u001c", "\u202f",
	}

	longs = []string{"a", "ab", "abc", "z", "é", "好", "🙂", "=", "-", "0", "ha", "A", "aA", "_", "한", "и", "▁", "Ġ", "1234567890", "\u0301", "~!"}

	specials = []string{
		"<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
		"<think>", "</think>", "<tool_call>", "</tool_call>", "<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<unused7>", "<unk>", "<s>", "</s>",
		"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<|start|>", "<|message|>", "<|channel|>", "<|return|>",
		"<|reserved_special_token_3|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<0x0A>", "<0xFF>", "▁", "▁▁", "<|", "|>", "<", "\n\n\n", "<table>", "<h1>",
	}

	digits = []string{"0123456789", "0123456789", "٠١٢٣٤٥٦٧٨٩", "০১২৩", "०१२३४५", "０１２３", "½¼²³①Ⅷ", "一二三四五", "𝟘𝟙𝟚", "๑๒๓"}

	bases = []string{"a", "e", "o", "A", "ᾳ", "ơ", "가", "ᄀ", "क", "ا", "ש", " ", "1", "", "z", "Å", "ﬁ"}

	combining = []string{
		"\u0300", "\u0301", "\u0302", "\u0303", "\u0308", "\u030a", "\u0323", "\u0327", "\u0328", "\u0338", "\u0345", "\u031b", "\u05b4", "\u064e", "\u0651",
		"\u093c", "\u094d", "\u1161", "\u11a8", "\u20d7", "\u3099", "\u302a", "\u0f71", "\u0f74", "\U0001d165",
	}

	apostrophes = []string{"'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'", "''", "’s", "'ſ", "'st", "'x", "'1", "s'", "'rE"}
)
