package brellium

// DocumentService uploads documents to be audited.
type DocumentService struct{ client *Client }
