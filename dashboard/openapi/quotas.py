"""What REST says of quotas."""

from gpudeck.quota import LIMITS

from ..quotas.views import (
    NewQuota,
    NodeQuotaList,
    OwnerQuotaList,
    QuotaCheck,
    QuotaDraft,
    QuotaHistoryView,
    QuotaList,
    QuotaVersionList,
    QuotaView,
    TaskQuotaList,
)
from ..web.openapi_parts import Operation

OPERATIONS: tuple[Operation, ...] = (
    Operation("get", "quotas", "list_quotas", "All Quotas: who holds how much of them, and on how "
              "many nodes each is wanted, applied and in force.", QuotaList),
    Operation("get", "quotas/{quota_id}", "get_quota", "One Quota.", QuotaView, None, 200, (404,)),
    Operation("get", "quotas/{quota_id}/versions", "list_quota_versions", "What it was, newest "
              "first; also of one that was removed.", QuotaVersionList, None, 200, (404,)),
    Operation("get", "quotas/{quota_id}/past", "get_quota_past", "What a holder had of one limit "
              "over the last hours, day or week, beside what it gave then.", QuotaHistoryView, None,
              200,
              (400, 404), (("holder", {"type": "string", "minLength": 1}),
                           ("limit", {"enum": list(LIMITS)}),
                           ("last", {"enum": ["3h", "24h", "7d"], "default": "24h"}))),
    Operation("get", "tasks/{id}/quotas", "get_task_quotas", "Which Quotas count for a Task, why "
              "these, and what its owner has of them.", TaskQuotaList, None, 200, (404,)),
    Operation("get", "nodes/{id}/quotas", "get_node_quotas", "The Quotas that concern a Node, or "
              "one Gpu of it, whether they are in force there, and who of their holders is there.",
              NodeQuotaList, None, 200, (400, 404),
              (("gpu", {"type": "string", "minLength": 1, "description": "Of this Gpu alone."}),)),
    Operation("get", "owners/{name}/quotas", "get_owner_quotas", "All that counts for one owner, "
              "also where they hold nothing of it now.", OwnerQuotaList),
    Operation("put", "quotas/{quota_id}", "put_quota", "A new Quota, or a change of one. Nodes "
              "hold it from their next look on, also without the hub.", QuotaView, NewQuota, 200,
              (400, 409, 412, 415, 503), version="generation"),
    Operation("delete", "quotas/{quota_id}", "remove_quota", "It limits nobody any more; what it "
              "was is kept.", None, None, 204, (404, 503)),
    Operation("post", "quota-checks", "check_quota", "What is wrong with it, or who would be over "
              "it at this moment.", QuotaCheck, QuotaDraft, 200, (400, 415)),
)
