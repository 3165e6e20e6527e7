// Package nearest finds the word that a misspelt word most likely meant, for error messages.
package nearest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// most bounds the candidates that are compared, because files of users can have many names.
const most = 200

// Word returns the candidate that is nearest to a word by its Levenshtein distance, or "" if none is near. Of
// several it returns the first. At most a third of the word's letters may differ, or two, because a swapped
// pair counts as two, but not more than half. Upper and lower case are the same.
func Word(word string, candidates []string) (near string) {
	word = strings.ToLower(word)
	best := 1 + max(min(len(word)/2, 2), len(word)/3)
	for _, candidate := range candidates[:min(len(candidates), most)] {
		distance := levenshtein.ComputeDistance(word, strings.ToLower(candidate))
		if distance < best && distance < len(candidate) {
			near, best = candidate, distance
		}
	}
	return near
}

// Suggest returns the word that was probably meant, as Word does, and a hint for a message. The hint names
// that word, or lists all words if none is near.
func Suggest(word string, words []string) (near, hint string) {
	if near = Word(word, words); near != "" {
		return near, fmt.Sprintf("did you mean %q?", near)
	}
	return "", "want " + OneOf(words)
}

// OneOf lists the possible words. It cuts the list short if a file can make it long.
func OneOf(words []string) string {
	const most = 20
	if len(words) > most {
		words = append(slices.Clone(words[:most]), "...")
	}
	if len(words) <= 3 {
		return strings.Join(words, " or ")
	}
	return "one of " + strings.Join(words, ", ")
}
