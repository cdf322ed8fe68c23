package openai

import (
	"mime"

	"github.com/turnpool/turnpool/session"
)

// address is where a medium is: its URL, or its bytes as a data URL.
func address(m session.Media) (string, error) {
	src := m.Source
	switch {
	case src.Type == "url" && src.URL != "":
		return src.URL, nil
	case src.Type == "base64" && src.MimeType != "":
		return "data:" + src.MimeType + ";base64," + src.Data, nil
	}
	return "", badRequest("a medium of type %q has neither a url, nor a mimeType and data", m.Type)
}

// mimeTypeOf is the type alone, without parameters.
func mimeTypeOf(m session.Media) string {
	kind, _, _ := mime.ParseMediaType(m.Source.MimeType)
	return kind
}

// extensions are those of the documents that OpenAI reads. It goes by the name.
var extensions = map[string]string{
	"application/pdf":    ".pdf",
	"application/json":   ".json",
	"application/msword": ".doc",
	"application/rtf":    ".rtf",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         ".xlsx",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   ".docx",
	"text/csv":      ".csv",
	"text/html":     ".html",
	"text/markdown": ".md",
	"text/plain":    ".txt",
	"text/xml":      ".xml",
}

// fileName is a name for a document, which has none of its own.
func fileName(m session.Media) string { return "document" + extensions[mimeTypeOf(m)] }

// audioFormats are the API's names of the formats that Chat takes.
var audioFormats = map[string]string{
	"audio/mp3":      "mp3",
	"audio/mpeg":     "mp3",
	"audio/wav":      "wav",
	"audio/wave":     "wav",
	"audio/x-wav":    "wav",
	"audio/vnd.wave": "wav",
}
