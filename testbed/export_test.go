package testbed

import "time"

// SetAnswerTimeout changes the limit of calls until it is restored.
func SetAnswerTimeout(limit time.Duration) (restore func()) {
	was := answerTimeout
	answerTimeout = limit
	return func() { answerTimeout = was }
}
